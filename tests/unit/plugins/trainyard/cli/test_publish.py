"""Packages of one's own: `publish`, and the publishing that `run` does first."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server, Trainyard

OWN = "train_tabular_digits-own"


def _own(server: Server, shapes: Any, folder: Path) -> Path:
    server.pipelines = [shapes.pipeline("digits-own", "tabular", package="mine", build="mine.model:build")]
    package = folder / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.py").write_text("def build(config): ...\n")
    return package


def test_a_run_publishes_the_package_first(server: Server, trainyard: Trainyard, shapes: Any, tmp_path: Path) -> None:
    _own(server, shapes, tmp_path / "work")
    server.documents = [shapes.document("success", [], dag_id=OWN, result=shapes.EXPORTED)]
    server.answers["POST", f"/trainyard/packages/{OWN}"] = (200, {"package": "mine", "sha256": "a" * 64, "changed": True, "size": 10})
    done = trainyard("run", "digits-own", "--json")
    assert done.code == 0, done.err
    assert "published mine aaaaaaaaaaaa" in done.err
    posts = [path for method, path, _ in server.asked if method == "POST"]
    assert posts == [f"/trainyard/packages/{OWN}", f"/api/v2/dags/{OWN}/dagRuns"]
    assert trainyard("run", "digits-own", "--no-publish", "--json").code == 0
    assert len(server.bodies("POST", f"/trainyard/packages/{OWN}")) == 1


def test_a_colleague_without_the_source_trains_what_was_published(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.pipelines = [shapes.pipeline("digits-own", "tabular", package="mine", build="mine.model:build")]
    server.documents = [shapes.document("success", [], dag_id=OWN, result=shapes.EXPORTED)]
    assert trainyard("run", "digits-own").code == 0


@pytest.mark.parametrize(
    ("source", "says"), [("def build(config:\n", "mine/model.py:1:"), ("def other(): ...\n", "there is no `build` in it")]
)
def test_code_that_cannot_work_is_found_before_anything_starts(
    server: Server, trainyard: Trainyard, shapes: Any, tmp_path: Path, source: str, says: str
) -> None:
    (_own(server, shapes, tmp_path / "work") / "model.py").write_text(source)
    for words in (("run", "digits-own"), ("publish", "digits-own"), ("publish", "mine"), ("publish",), ("run", "digits-own", "--local")):
        done = trainyard(*words)
        assert (done.code, done.out) == (2, ""), words
        assert says in done.err
        assert not [path for method, path, _ in server.asked if method == "POST"]


def test_publish_sends_the_wheel_and_its_digest(server: Server, trainyard: Trainyard, shapes: Any, tmp_path: Path) -> None:
    from trainyard.cli import wheel

    package = _own(server, shapes, tmp_path / "work")
    server.answers["POST", f"/trainyard/packages/{OWN}"] = (200, {"package": "mine", "sha256": "a" * 64, "changed": True, "size": 10})
    for words in (("digits-own",), ("tabular/digits-own",), (str(package),), (str(package.parent),), ()):
        server.asked.clear()
        assert trainyard("publish", *words, "--json").lines[0]["files"] == 2, words
        assert server.bodies("POST", f"/trainyard/packages/{OWN}") == [wheel.build(package).data]
    assert hashlib.sha256(wheel.build(package).data).hexdigest() == wheel.build(package).sha256


@pytest.mark.parametrize(
    ("words", "says"),
    [("digits-mlp", "there is nothing to publish"), ("nothing", "no pipeline `nothing`"), ("./nothing", "neither a pipeline nor a folder")],
)
def test_what_cannot_be_published(server: Server, trainyard: Trainyard, words: str, says: str) -> None:
    done = trainyard("publish", words)
    assert (done.code, says in done.err) == (2, True), done.err


def test_a_package_that_no_pipeline_names_says_what_to_write(server: Server, trainyard: Trainyard, tmp_path: Path) -> None:
    (tmp_path / "work" / "mine").mkdir()
    (tmp_path / "work" / "mine" / "__init__.py").touch()
    done = trainyard("publish", "mine")
    assert (done.code, "write `package: mine`" in done.err) == (2, True)
