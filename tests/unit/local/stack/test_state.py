"""The state folder: private files, whole or not at all; one starter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from local.stack.daemon import hold
from local.stack.events import StackError
from local.stack.processes import Identity
from local.stack.state import CHECKOUT, StarterLock, State, write_private


def test_folders_and_files_are_the_users_alone(tmp_path: Path) -> None:
    state = State.at(tmp_path / "var")
    state.write({"phase": "up"})
    assert state.root.stat().st_mode & 0o777 == 0o700
    assert state.kube.stat().st_mode & 0o777 == 0o700
    assert state.file.stat().st_mode & 0o777 == 0o600
    assert state.read() == {"phase": "up"}


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match=r"cannot make the state folder .*--state DIR or TRAINYARD_STATE"):
        State.at(tmp_path / "file" / "var")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one"
    write_private(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


def test_a_state_file_that_is_not_json_names_the_way_out(tmp_path: Path) -> None:
    state = State.at(tmp_path)
    state.file.write_text("{")
    with pytest.raises(StackError, match="delete it"):
        state.read()


def test_never_up_is_an_empty_state(tmp_path: Path) -> None:
    state = State.at(tmp_path)
    assert state.read() == {}
    assert state.starter() is None


def test_the_lock_has_one_holder_and_dies_with_it(tmp_path: Path) -> None:
    state = State.at(tmp_path)
    program = f"""
import sys, time
from pathlib import Path
from local.stack.daemon import hold
from local.stack.state import State
print(hold(State.at(Path({str(tmp_path)!r}))) is not None, flush=True)
time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", program], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "True\n"
        assert hold(state) is None
        assert state.starter() == Identity.of(holder.pid)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert state.starter() is None
    lock = hold(state)
    assert lock is not None
    assert json.loads((state.run / "starter.json").read_text())["pid"] == os.getpid()
    lock.release()
    again = StarterLock(state)
    assert again.acquire()
    again.release()
