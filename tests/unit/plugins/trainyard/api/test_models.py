"""Versions, the champion, and links that reach exactly one object each."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from trainyard.contract import keys

if TYPE_CHECKING:
    from conftest import World

VISION = "train_vision_digits-mlp"
MODEL = "digits-mlp"
FILES = {"saved_model.pb": b"graph", "variables/variables.index": b"index"}


def _export(world: World, version: int, files: dict[str, bytes] = FILES, *, marker: bool = True, **values: Any) -> None:
    store, folder = world.store(models=True), keys.model_version(MODEL, version)
    for path, data in files.items():
        store.put(f"{folder}{path}", data)
    store.put_json(keys.model_claim(MODEL, version), {"run": "x"})
    if marker:
        listed = [{"key": f"{folder}{path}", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in files.items()]
        store.put_json(
            keys.model_marker(MODEL, version),
            {"version": 1, "step": "export", "files": listed, "values": values, "ended": "2026-03-01T00:00:00+00:00"},
        )


def _champion(world: World, version: int) -> None:
    champion = {"model": MODEL, "version": version, "run": "digits-mlp-a", "dataset_version": "1.0.0", "metrics": {"accuracy": 0.97}}
    world.store(models=True).put_json(keys.champion(MODEL), champion)


def test_versions_are_listed_when_they_are_whole(world: World) -> None:
    _export(world, 1)
    _export(world, 2)
    _export(world, 10, metrics={"accuracy": 0.5})
    _export(world, 11, marker=False)
    _champion(world, 2)
    found = world.ask("alice", "GET", f"/models/{VISION}").json()
    assert [(v["version"], v["champion"]) for v in found["versions"]] == [(10, False), (2, True), (1, False)]
    assert found["versions"][0]["metrics"] == {"accuracy": 0.5}
    assert found["versions"][1]["metrics"] == {"accuracy": 0.97}
    assert found["versions"][1]["bytes"] == 10
    everything = world.ask("alice", "GET", "/models").json()["models"]
    assert [m["pipeline"] for m in everything if m["versions"]] == ["digits-mlp"]


def test_files_come_by_links_that_work_without_a_login(world: World) -> None:
    _export(world, 1)
    _champion(world, 1)
    for version in ("1", "champion"):
        found = world.ask("alice", "GET", f"/models/{VISION}/{version}").json()
        assert {file["path"]: httpx.get(file["url"]).content for file in found["files"]} == FILES
    url = found["files"][0]["url"]
    assert httpx.get(url.replace("saved_model.pb", "marker.json")).status_code == 403
    assert httpx.put(url, content=b"x").status_code == 403


def test_a_marker_cannot_make_a_link_to_something_else(world: World) -> None:
    store = world.store(models=True)
    store.put("secret/1/file", b"secret")
    item = {"key": "secret/1/file", "size": 6, "sha256": "0" * 64}
    store.put_json(keys.model_marker(MODEL, 1), {"files": [item], "values": {}})
    (file,) = world.ask("alice", "GET", f"/models/{VISION}/1").json()["files"]
    assert httpx.get(file["url"]).status_code == 404


@pytest.mark.parametrize(("version", "status"), [("1", 404), ("champion", 404), ("newest", 400), ("-1", 400), ("99999999999", 400)])
def test_versions_that_are_not_there(world: World, version: str, status: int) -> None:
    assert world.ask("alice", "GET", f"/models/{VISION}/{version}").status_code == status
