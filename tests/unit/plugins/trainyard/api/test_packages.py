"""Publishing: the wheel first, the pointer after it, and nothing that is not a pure wheel of that package."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.api import packages, wheels
from trainyard.cli import wheel
from trainyard.contract import keys
from trainyard.errors import ConfigError, ConflictError
from trainyard.store import Store

if TYPE_CHECKING:
    from conftest import World

DAG = "train_tabular_digits-own"
PACKAGE = "digits_model"


def _wheel(tmp_path: Path, text: str = "def build(config):\n    return 1\n") -> bytes:
    folder = tmp_path / PACKAGE
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text(text)
    return wheel.build(folder).data


def _publish(world: World, data: bytes, sha256: str | None = None, who: str = "carol") -> Any:
    return world.ask(who, "POST", f"/packages/{DAG}", params={"sha256": sha256 or hashlib.sha256(data).hexdigest()}, content=data)


def test_a_wheel_is_stored_by_digest_and_becomes_the_newest(world: World, tmp_path: Path) -> None:
    data = _wheel(tmp_path)
    digest = hashlib.sha256(data).hexdigest()
    answer = _publish(world, data).json()
    assert (answer["package"], answer["sha256"], answer["changed"], answer["by"]) == (PACKAGE, digest, True, "carol")
    store = world.store("tabular")
    assert store.get(keys.code_wheel(PACKAGE, digest)) == data
    newest = store.get_json(keys.code_newest(PACKAGE))
    assert {key: newest[key] for key in ("sha256", "key", "by", "size")} == {
        "sha256": digest, "key": keys.code_wheel(PACKAGE, digest), "by": "carol", "size": len(data),
    }  # fmt: skip
    assert newest["published"]


def test_publishing_again_changes_nothing_and_an_older_wheel_can_be_made_the_newest_again(world: World, tmp_path: Path) -> None:
    old, new = _wheel(tmp_path), _wheel(tmp_path, "def build(config):\n    return 2\n")
    assert [_publish(world, data).json()["changed"] for data in (old, old, new, old)] == [True, False, True, True]
    assert world.store("tabular").get_json(keys.code_newest(PACKAGE))["sha256"] == hashlib.sha256(old).hexdigest()


def test_two_who_publish_at_once_leave_one_whole_pointer(world: World, tmp_path: Path) -> None:
    data = [_wheel(tmp_path, f"def build(config):\n    return {n}\n") for n in range(4)]
    answers: list[int] = []
    threads = [threading.Thread(target=lambda d=d: answers.append(_publish(world, d).status_code)) for d in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
    newest = world.store("tabular").get_json(keys.code_newest(PACKAGE))
    assert world.store("tabular").head(newest["key"]).size == newest["size"]


def test_a_pointer_that_others_move_all_the_time_is_given_up(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def conflict(*_: Any, **__: Any) -> None:
        tries.append(1)
        raise ConflictError("another writer was first")

    monkeypatch.setattr(Store, "put_json", conflict)
    assert _publish(world, _wheel(tmp_path)).status_code == 503
    assert len(tries) == packages.POINTER_TRIES


def test_a_pipeline_of_our_own_model_takes_no_package(world: World, tmp_path: Path) -> None:
    answer = world.ask("alice", "POST", f"/packages/train_vision_digits-mlp?sha256={'0' * 64}", content=_wheel(tmp_path))
    assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (400, "pipeline `digits-mlp` names no package")


def test_a_body_without_end_is_cut_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.api.application.MAX_BYTES", 1000)
    assert _publish(world, b"x" * 1001).status_code == 413


def test_a_wrong_digest_is_refused_and_nothing_stored(world: World, tmp_path: Path) -> None:
    assert _publish(world, _wheel(tmp_path), "1" * 64).status_code == 400
    assert _publish(world, _wheel(tmp_path), "../../x").status_code == 422
    assert list(world.store("tabular").list("code/")) == []


def _changed(data: bytes, change: Callable[[list[tuple[zipfile.ZipInfo, bytes]]], None]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    change(entries)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
    return buffer.getvalue()


def _entry(name: str, mode: int = 0o100644) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return entry


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (_entry("../evil.py"), "no wheel does"),
        (_entry("/etc/passwd"), "no wheel does"),
        (_entry("digits_model\\evil.py"), "no wheel does"),
        (_entry("digits_model/link", 0o120777), "no wheel does"),
        (_entry("keras/__init__.py"), "outside the package"),
        (_entry("sitecustomize.py"), "outside the package"),
        (_entry("digits_model/fast.so"), "pure Python"),
        (_entry("digits_model/run.pth"), "pure Python"),
        (_entry("other-1.dist-info/METADATA"), "not a wheel of the package"),
    ],
)
def test_what_no_wheel_of_the_package_holds_is_refused(tmp_path: Path, entry: zipfile.ZipInfo, words: str) -> None:
    data = _changed(_wheel(tmp_path), lambda entries: entries.append((entry, b"x")))
    with pytest.raises(ConfigError, match=words):
        wheels.inspect(data, PACKAGE, hashlib.sha256(data).hexdigest())


def test_what_is_no_wheel_at_all_is_refused(tmp_path: Path) -> None:
    good = _wheel(tmp_path)
    no_init = _changed(good, lambda entries: entries.__setitem__(slice(None), [e for e in entries if "__init__" not in e[0].filename]))
    no_name = _changed(
        good, lambda entries: entries.__setitem__(slice(None), [e for e in entries if not e[0].filename.endswith("METADATA")])
    )
    broken = bytearray(good)
    broken[good.index(b"return 1")] ^= 1
    for data in (b"", b"hello", good[: len(good) // 2], no_init, no_name, bytes(broken)):
        with pytest.raises(ConfigError):
            wheels.inspect(data, PACKAGE, hashlib.sha256(data).hexdigest())
    with pytest.raises(ConfigError, match=r"not a wheel of the package|outside the package"):
        wheels.inspect(good, "another", hashlib.sha256(good).hexdigest())


def test_a_wheel_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = _wheel(tmp_path)
    monkeypatch.setattr(wheels, "MAX_UNPACKED_BYTES", 10)
    with pytest.raises(ConfigError, match="more than"):
        wheels.inspect(data, PACKAGE, hashlib.sha256(data).hexdigest())
