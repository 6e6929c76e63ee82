"""Models and shards come here whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from trainyard.cli import download
from trainyard.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from conftest import Server, Trainyard

CONTENT = {"saved_model.pb": b"graph" * 1000, "variables/variables.index": b"", "variables/variables.data": b"weights"}


def _files(content: dict[str, bytes] = CONTENT) -> list[dict[str, Any]]:
    return [
        {"path": path, "url": f"http://127.0.0.1:1/{path}", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in content.items()
    ]


def _transport(answer: Callable[[str, int], httpx.Response] | None = None) -> httpx.MockTransport:
    """S3; ``answer`` gets the path and how often it was asked for."""
    asked: dict[str, int] = {}

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/")
        asked[path] = asked.get(path, 0) + 1
        return answer(path, asked[path]) if answer else httpx.Response(200, content=CONTENT[path])

    return httpx.MockTransport(handle)


def test_a_folder_appears_with_everything_in_it(tmp_path: Path) -> None:
    download.fetch(_files(), tmp_path / "deep" / "model", marker={"a": 1}, transport=_transport())
    found = {
        str(p.relative_to(tmp_path / "deep" / "model")): p.read_bytes() for p in (tmp_path / "deep" / "model").rglob("*") if p.is_file()
    }
    assert json.loads(found.pop("marker.json")) == {"a": 1}
    assert found == CONTENT
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model"]


def test_a_file_that_came_wrong_once_is_fetched_again(tmp_path: Path) -> None:
    def answer(path: str, times: int) -> httpx.Response:
        if times == 1:
            raise httpx.ReadError("cut off")
        return httpx.Response(200, content=CONTENT[path] if times > 2 else CONTENT[path] + b"x")

    download.fetch(_files(), tmp_path / "model", transport=_transport(answer))
    assert (tmp_path / "model" / "saved_model.pb").read_bytes() == CONTENT["saved_model.pb"]


@pytest.mark.parametrize("broken", sorted(CONTENT))
@pytest.mark.parametrize("how", ["longer", "shorter", "changed"])
def test_bytes_that_do_not_match_leave_no_folder(tmp_path: Path, broken: str, how: str) -> None:
    def answer(path: str, _: int) -> httpx.Response:
        data = CONTENT[path]
        if path == broken:
            data = {"longer": data + b"x", "shorter": data[:-1] or b"x", "changed": b"G" + data[1:]}[how]
        return httpx.Response(200, content=data)

    with pytest.raises(download.DamagedError, match="not what its marker says"):
        download.fetch(_files(), tmp_path / "model", transport=_transport(answer))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_server_that_does_not_give_leaves_no_folder(tmp_path: Path, status: int) -> None:
    with pytest.raises(UnavailableError):
        download.fetch(_files(), tmp_path / "model", transport=_transport(lambda *_: httpx.Response(status)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", ""])
def test_a_path_that_leaves_the_folder_is_refused_before_anything_comes(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="outside the folder"):
        download.fetch([*_files(), {**_files()[0], "path": path}], tmp_path / "model", transport=_transport())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        download.fetch(_files(), tmp_path / "model", transport=_transport())


def test_a_folder_that_cannot_be_made_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"file/model cannot be made .*: name another folder with `-o`"):
        download.fetch(_files(), tmp_path / "file" / "model", transport=_transport())
    with pytest.raises(ConfigError, match=r"^/proc/model cannot be made"):
        download.fetch(_files(), Path("/proc/model"), transport=_transport())


def test_what_was_fetched_before_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch_one(_: Any, file: dict[str, Any], path: Path) -> None:
        fetched.append(file["path"])
        path.write_bytes(CONTENT[file["path"]])

    monkeypatch.setattr(download, "_fetch_one", fetch_one)
    download.fetch_cached(_files(), tmp_path)
    download.fetch_cached(_files(), tmp_path)
    assert fetched == list(CONTENT)
    (tmp_path / "saved_model.pb").write_bytes(b"damaged")
    download.fetch_cached(_files(), tmp_path)
    assert fetched[3:] == ["saved_model.pb"]
    assert (tmp_path / "saved_model.pb").read_bytes() == CONTENT["saved_model.pb"]


VERSION = {
    "model": "digits-mlp", "version": 3, "champion": True, "run": "digits-mlp-a", "dataset_version": "1.1.0", "metrics": {"accuracy": 0.97},
    "exported": "2026-03-01T10:00:00+00:00", "bytes": 5007,
}  # fmt: skip


def test_model_get_asks_for_the_champion_or_a_number(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        download, "_fetch_one", lambda _, file, path: (path.parent.mkdir(exist_ok=True), path.write_bytes(CONTENT[file["path"]]))
    )
    base = "/trainyard/models/train_vision_digits-mlp"
    for version, words in (("champion", []), ("3", ["--model-version", "3", "-o", "here"])):
        server.answers["GET", f"{base}/{version}"] = (200, VERSION | {"files": _files(), "marker": {"step": "export"}})
        done = trainyard("model", "get", "digits-mlp", *words, "--json")
        assert done.code == 0, done.err
        assert (done.lines[0]["version"], done.lines[0]["metrics"]) == (3, {"accuracy": 0.97})
    for folder in ("digits-mlp/3", "here"):
        assert (Path(folder) / "saved_model.pb").read_bytes() == CONTENT["saved_model.pb"]
        assert json.loads((Path(folder) / "marker.json").read_text()) == {"step": "export"}
    again = trainyard("model", "get", "digits-mlp")
    assert (again.code, "exists already" in again.err) == (2, True)


def test_models_are_listed(server: Server, trainyard: Trainyard) -> None:
    mine = {"pipeline": "digits-mlp", "tenant": "vision", "versions": [VERSION, VERSION | {"version": 2, "champion": False}]}
    server.answers["GET", "/trainyard/models"] = (200, {"models": [mine]})
    server.answers["GET", "/trainyard/models/train_vision_digits-mlp"] = (200, mine)
    for words in ((), ("digits-mlp",)):
        done = trainyard("models", *words)
        assert done.out.count("champion") == 2  # the column, and one version
        assert "0.97" in done.out
    server.answers["GET", "/trainyard/models"] = (200, {"models": []})
    assert "no models yet" in trainyard("models").out
