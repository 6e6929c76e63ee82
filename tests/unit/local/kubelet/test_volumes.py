from __future__ import annotations

import base64
import stat
import time
from pathlib import Path

import pytest

from local.kubelet.api import Json
from local.kubelet.node import Capacity
from local.kubelet.sources import SourceError, Sources
from local.kubelet.volumes import Volumes, used_bytes
from tests.unit.local.kubelet.conftest import FakeApi, pod_document

TOKEN = "/api/v1/namespaces/ns/serviceaccounts/default/token"


def volumes(api: FakeApi, folder: Path, *items: Json) -> Volumes:
    pod = pod_document(volumes=list(items), metadata={"labels": {"a": "1"}})
    return Volumes(pod, folder / "volumes", Sources(api, pod), Capacity(4, 1 << 30))  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def secret(api: FakeApi, name: str, **values: str) -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    api.answers["GET", f"/api/v1/namespaces/ns/secrets/{name}"] = {"data": data}


def test_an_empty_dir_is_a_folder_that_a_second_make_leaves_alone(api: FakeApi, tmp_path: Path) -> None:
    made = volumes(api, tmp_path, {"name": "work", "emptyDir": {}})
    made.make()
    (made.path("work") / "file").write_text("kept")
    made.make()
    assert contents(made.path("work")) == {"file": "kept"}


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ({"secret": {"secretName": "s"}}, {"a": "A", "b": "B"}),
        ({"secret": {"secretName": "s", "items": [{"key": "b", "path": "deep/er/b"}]}}, {"deep/er/b": "B"}),
        ({"secret": {"secretName": "absent", "optional": True}}, {}),
        ({"secret": {"secretName": "s", "optional": True, "items": [{"key": "no", "path": "x"}, {"key": "a", "path": "y"}]}}, {"y": "A"}),
        ({"configMap": {"name": "m"}}, {"c": "C"}),
        ({"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "m"}}]}}, {"a": "A", "b": "B", "c": "C"}),
        ({"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}, {"l": 'a="1"'}),
    ],
)
def test_contents(api: FakeApi, tmp_path: Path, volume: Json, files: dict[str, str]) -> None:
    secret(api, "s", a="A", b="B")
    api.answers["GET", "/api/v1/namespaces/ns/configmaps/m"] = {"data": {"c": "C"}}
    made = volumes(api, tmp_path, {"name": "v", **volume})
    made.make()
    assert contents(made.path("v")) == files


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"secret": {"secretName": "absent"}}, 'volume "v" : secret "absent" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "no", "path": "x"}]}}, "non-existent secret key: no"),
        ({"configMap": {"name": "absent"}}, 'configmap "absent" not found'),
    ],
)
def test_what_is_missing_is_named(api: FakeApi, tmp_path: Path, volume: Json, words: str) -> None:
    secret(api, "s", a="A")
    with pytest.raises(SourceError, match=words):
        volumes(api, tmp_path, {"name": "v", **volume}).make()


def test_modes(api: FakeApi, tmp_path: Path) -> None:
    secret(api, "s", a="A", b="B")
    items = [{"key": "a", "path": "a", "mode": 0o400}, {"key": "b", "path": "b"}]
    made = volumes(api, tmp_path, {"name": "v", "secret": {"secretName": "s", "items": items, "defaultMode": 0o440}})
    made.make()
    assert [stat.S_IMODE((made.path("v") / name).stat().st_mode) for name in ("a", "b")] == [0o400, 0o440]


def test_a_token_is_renewed_before_it_ends(api: FakeApi, tmp_path: Path) -> None:
    api.answers["POST", TOKEN] = {"status": {"token": "one"}, "spec": {"expirationSeconds": 1000}}
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    made = volumes(api, tmp_path, {"name": "v", "projected": {"sources": [source]}})
    made.make()
    file, now = made.path("v") / "token", time.monotonic()
    assert file.read_text() == "one"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    due = made.next_renewal()
    assert due == pytest.approx(now + 800, abs=5)
    api.answers["POST", TOKEN] = {"status": {"token": "two"}, "spec": {"expirationSeconds": 1000}}
    made.renew_tokens(now + 700)
    assert file.read_text() == "one"
    made.renew_tokens(now + 801)
    assert file.read_text() == "two"


def test_size_limits(api: FakeApi, tmp_path: Path) -> None:
    made = volumes(api, tmp_path, {"name": "free", "emptyDir": {}}, {"name": "tight", "emptyDir": {"sizeLimit": "64Ki"}})
    made.make()
    assert made.limited()
    (made.path("free") / "big").write_bytes(b"x" * 200_000)
    assert made.over_limit() is None
    inner = made.path("tight") / "inner"
    inner.mkdir()
    (inner / "big").write_bytes(b"x" * 200_000)
    assert made.over_limit() == ("tight", "64Ki")


def test_no_size_limit(api: FakeApi, tmp_path: Path) -> None:
    assert not volumes(api, tmp_path, {"name": "free", "emptyDir": {}}).limited()


def test_used_bytes_does_not_follow_links_or_mind_what_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "file").write_bytes(b"x" * 8192)
    assert used_bytes(tmp_path) >= 8192
    assert used_bytes(tmp_path / "never-was") == 0


def test_a_reader_never_sees_half_a_file(api: FakeApi, tmp_path: Path) -> None:
    """A renewed file is another inode: whoever has the old one open reads it to its end."""
    api.answers["POST", TOKEN] = {"status": {"token": "first"}, "spec": {"expirationSeconds": 10}}
    made = volumes(api, tmp_path, {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})
    made.make()
    with (made.path("v") / "token").open() as held:
        api.answers["POST", TOKEN] = {"status": {"token": "second"}, "spec": {"expirationSeconds": 10}}
        made.renew_tokens(time.monotonic() + 100)
        assert held.read() == "first"
    assert [name.name for name in made.path("v").iterdir()] == ["token"]
