"""``trainyard images build``: what docker is told, and what is made of its answers. A program of the test's stands where docker would."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainyard.cli import image_builds
from trainyard.cli.docker import Docker, Line
from trainyard.cli.exits import RunFailedError
from trainyard.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Trainyard

CHECKOUT = Path(__file__).resolve().parents[5]

DOCKER = """#!/bin/sh
printf '%s\\n' "$PIP_INDEX_URL|$*" >> "$CALLS"
case "$1 $2" in
"version "*) [ -z "$NO_ENGINE" ] || { echo "Cannot connect to the Docker daemon" >&2; exit 1; }; echo 20.10.24 ;;
"image inspect") echo 1800000000 ;;
"manifest inspect") echo '{"layers": [{"size": 50}, {"size": 460000000}, {"size": 250000}]}' ;;
"build "*)
  echo "Step 1/2 : FROM base"; echo "  one word"; echo "Step 2/2 : RUN echo user:x:65532"
  [ -z "$FAILS" ] || { echo "no such package" >&2; exit 7; }
  ;;
"push "*) echo "0123: Pushed" ;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a ``docker`` that answers as the real one; ``VARIABLES|WORDS`` a line."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in [*image_builds._PIP_ARGUMENTS, *image_builds._PROXIES, "NO_ENGINE", "FAILS"]:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "calls"


def test_both_images_are_built_pushed_and_weighed(trainyard: Trainyard, calls: Path) -> None:
    done = trainyard("images", "build", "--push", "localhost:5000", "--tag", "t1", "--base", "own/python:3.11", "--json")
    assert done.code == 0, done.err
    images = [line for line in done.lines if "reference" in line]
    assert [image["reference"] for image in images] == ["localhost:5000/trainyard/trainer:t1", "localhost:5000/trainyard/airflow:t1"]
    assert [(image["bytes"], image["packed_bytes"], image["code_bytes"]) for image in images] == [(1800000000, 460250050, 250000)] * 2
    assert [(line["step"], line["steps"], line["text"]) for line in done.lines if line.get("event") == "step"] == [
        (1, 2, "FROM base"),
        (2, 2, "RUN echo user:x:65532"),
    ] * 2
    said = [line.partition("|")[2] for line in calls.read_text().splitlines()]
    assert [words.split()[0] for words in said] == ["version", "build", "image", "push", "manifest", "build", "image", "push", "manifest"]
    trainer, airflow = (words for words in said if words.startswith("build"))
    assert trainer.endswith(f" {CHECKOUT}/images/trainer")
    assert airflow.endswith(f" {CHECKOUT}")
    for words in (trainer, airflow):
        assert "--build-arg BASE=own/python:3.11" in words
        assert f"--build-arg VERSION={image_builds.version(CHECKOUT)}" in words
        assert "--network host" in words
    assert "trainer: localhost:5000/trainyard/trainer:t1, airflow: localhost:5000/trainyard/airflow:t1" in done.err


def test_without_a_registry_nothing_is_pushed_and_the_gpu_is_the_trainers(trainyard: Trainyard, calls: Path) -> None:
    done = trainyard("images", "build", "--gpu", "--tag", "t1")
    assert done.code == 0, done.err
    said = calls.read_text()
    assert " push" not in said
    assert "|push" not in said
    builds = [line for line in said.splitlines() if "|build" in line]
    assert ["REQUIREMENTS=requirements-gpu.txt" in line for line in builds] == [True, False]
    assert "--tag localhost/trainyard/trainer:t1-gpu" in builds[0]
    assert "--tag localhost/trainyard/airflow:t1 " in builds[1]
    assert "  … trainer 2/2  RUN echo user:x:65532\n" in done.out
    assert "1.7 GiB" in done.out
    assert "`--push REGISTRY`" in done.err


def test_only_one_of_them(trainyard: Trainyard, calls: Path) -> None:
    assert trainyard("images", "build", "--only", "airflow").code == 0
    builds = [line for line in calls.read_text().splitlines() if "|build" in line]
    assert len(builds) == 1
    assert "/trainyard/airflow:" in builds[0]


def test_a_password_in_an_index_is_in_no_ones_process_list(trainyard: Trainyard, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a program are read by anyone on the machine; its environment is not."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@packages.invalid/simple")
    assert trainyard("images", "build", "--only", "trainer").code == 0
    (build,) = [line for line in calls.read_text().splitlines() if "|build" in line]
    told, _, words = build.partition("|")
    assert told == "https://me:secret@packages.invalid/simple"
    assert "--build-arg PIP_INDEX_URL " in words
    assert "secret" not in words


def test_a_failed_build_ends_with_its_last_lines(trainyard: Trainyard, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "1")
    done = trainyard("images", "build")
    assert done.code == 1
    assert "trainyard: `docker build` failed (7); its last lines:" in done.err
    assert "no such package" in done.err
    assert "Traceback" not in done.err


def test_no_engine_and_no_docker(trainyard: Trainyard, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_ENGINE", "1")
    done = trainyard("images", "build")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "Docker's engine does not answer (Cannot connect to the Docker daemon)" in done.err
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    done = trainyard("images", "build")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "no `docker` on PATH" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--only", "board"), "--only board: there are trainer and airflow"),
        (("--tag", "a b"), "--tag a b: letters, digits"),
        (("--push", "https://registry.example.org"), "--push https://registry.example.org: name a registry"),
    ],
)
def test_wrong_words_start_nothing(trainyard: Trainyard, calls: Path, words: tuple[str, ...], says: str) -> None:
    done = trainyard("images", "build", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert says in done.err
    assert not calls.exists()


def test_the_tag_says_the_content(tmp_path: Path) -> None:
    """A node that has an image of a name fetches no other of that name."""
    for name in ("images", "plugins", "dags", "pyproject.toml"):
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    tag = image_builds.content_tag(tmp_path, "base")
    assert tag == image_builds.content_tag(CHECKOUT, "base")
    assert tag.startswith(f"{image_builds.version(CHECKOUT)}-")
    assert image_builds.content_tag(tmp_path, "another") != tag
    cache = tmp_path / "images/trainer/src/trainer/__pycache__"
    cache.mkdir()
    (cache / "cli.cpython-311.pyc").write_bytes(b"-")
    assert image_builds.content_tag(tmp_path, "base") == tag
    for name in (
        "images/trainer/src/trainer/cli.py",
        "plugins/trainyard/errors.py",
        "images/trainer/requirements.txt",
        "dags/training_dag.py",
    ):
        path = tmp_path / name
        before = path.read_text()
        path.write_text(before + "\n# changed\n")
        assert image_builds.content_tag(tmp_path, "base") != tag, name
        path.write_text(before)


def test_pip_in_a_build_asks_whom_pip_here_asks(tmp_path: Path) -> None:
    site, own = tmp_path / "site.conf", tmp_path / "own.conf"
    site.write_text("[global]\nindex-url = https://site.invalid/simple\ntrusted-host = site.invalid\n    other.invalid\n")
    own.write_text("[install]\nindex-url = https://own.invalid/%(x)s\n")
    found = image_builds.package_arguments({}, [site, own])
    assert found == {"PIP_INDEX_URL": "https://own.invalid/%(x)s", "PIP_TRUSTED_HOST": "site.invalid other.invalid"}
    environment = {"PIP_INDEX_URL": "https://said.invalid/simple", "https_proxy": "http://proxy.invalid:3128", "PIP_CERT": "/x"}
    assert image_builds.package_arguments(environment, [site]) == {
        "PIP_INDEX_URL": "https://said.invalid/simple",
        "PIP_TRUSTED_HOST": "site.invalid other.invalid",
        "https_proxy": "http://proxy.invalid:3128",
    }
    own.write_text("index-url\n")
    with pytest.raises(ConfigError, match=r"own\.conf cannot be read as pip's configuration"):
        image_builds.package_arguments({}, [own])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Step 3/14 : RUN python -m venv /opt/trainer", Line("RUN python -m venv /opt/trainer", 3, 14)),
        ("#8 [environment 3/5] COPY requirements.txt /opt", Line("COPY requirements.txt /opt", 3, 5)),
        ("#5 [2/7] RUN echo", Line("RUN echo", 2, 7)),
        ("#5 0.312 Collecting numpy", Line("#5 0.312 Collecting numpy")),
        (" ---> Running in 0123", Line(" ---> Running in 0123")),
    ],
)
def test_both_builders_are_read(text: str, line: Line) -> None:
    assert Line.read(text) == line


def test_a_program_that_is_interrupted_does_not_go_on(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho $$; exec sleep 600\n")
    program.chmod(0o755)
    seen: list[int] = []

    def interrupt(line: Line) -> None:
        seen.append(int(line.text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Docker(str(program)).run(["build"], interrupt)
    assert not Path(f"/proc/{seen[0]}").exists()


def test_what_a_failed_program_said_is_told(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nfor i in $(seq 100); do echo line $i; done; exit 3\n")
    program.chmod(0o755)
    with pytest.raises(RunFailedError) as failed:
        Docker(str(program)).run(["push"], lambda line: None)
    text = str(failed.value).splitlines()
    assert text[0] == "`docker push` failed (3); its last lines:"
    assert [line.strip() for line in text[1:]] == [f"line {i}" for i in range(86, 101)]


def test_the_summary_is_json_a_program_can_read(trainyard: Trainyard, calls: Path) -> None:
    done = trainyard("images", "build", "--only", "trainer", "--tag", "t1", "--json")
    assert json.loads(done.out.splitlines()[-1])["packed_bytes"] is None
