from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.kubelet import leftovers, proctree


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    (tmp_path / "pods").mkdir()
    return tmp_path / "pods"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any kubelet."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def record(pods: Path, pid: int, started: int) -> None:
    folder = pods / "uid" / "containers" / "main"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"shim": {"pid": 1, "started": -1}, "process": {"pid": pid, "started": started}}))


def started(pid: int) -> int:
    found = proctree.read(pid)
    assert found is not None
    return found.started


def test_nothing_to_do(pods: Path, stranger: subprocess.Popen[bytes]) -> None:
    assert leftovers.reap(pods) == 0
    assert stranger.poll() is None


def test_a_process_on_record_goes_with_its_descendants(pods: Path) -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
    time.sleep(0.1)
    record(pods, process.pid, started(process.pid))
    assert leftovers.reap(pods) >= 2
    assert process.wait(5) == -9


def test_a_pid_that_was_given_to_another_is_left_alone(pods: Path, stranger: subprocess.Popen[bytes]) -> None:
    record(pods, stranger.pid, started(stranger.pid) - 1)
    assert leftovers.find(pods) == []
    assert stranger.poll() is None


def test_what_outlived_its_leader_is_found_by_its_session(pods: Path) -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; exec sleep 600"], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline())
    record(pods, leader.pid, started(leader.pid))
    leader.kill()
    leader.wait()
    leader.stdout.close()
    assert leftovers.find(pods) == [orphan]
    assert leftovers.reap(pods) == 1


def test_what_left_its_session_is_found_by_its_home(pods: Path) -> None:
    home = pods / "uid" / "containers" / "main" / "work"
    process = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "HOME": str(home)}, start_new_session=True)
    elsewhere = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "HOME": f"{pods}-of-another/x"}, start_new_session=True)
    try:
        time.sleep(0.1)
        assert leftovers.find(pods) == [process.pid]
        assert leftovers.reap(pods) == 1
        assert process.wait(5) == -9
        assert elsewhere.poll() is None
    finally:
        elsewhere.kill()
        elsewhere.wait()


@pytest.mark.parametrize("text", ["", "{", '{"shim": 1}', "[]"])
def test_a_torn_record_is_passed_over(pods: Path, text: str) -> None:
    folder = pods / "uid" / "containers" / "main"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(text)
    assert leftovers.find(pods) == []
