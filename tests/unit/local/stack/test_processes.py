"""Left-over processes are found by descent and session; a reused pid is nobody's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from local.stack import processes
from local.stack.processes import Identity

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
GROWN = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def session() -> subprocess.Popen[str]:
    """A session leader with one child."""
    leader = subprocess.Popen([sys.executable, "-c", GROWN], start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert leader.stdout is not None
    leader.stdout.readline()
    identity = Identity.of(leader.pid)
    yield leader
    processes.kill(processes.members(identity))
    leader.kill()
    leader.wait()
    leader.stdout.close()


def write_record(run: Path, shim: Identity, main: Identity) -> None:
    run.mkdir(exist_ok=True)
    value = {"name": "one", "shim": [shim.pid, shim.started], "main": [main.pid, main.started]}
    (run / "one.process.json").write_text(json.dumps(value))


GONE = Identity(2**22 - 7, 1)  # beyond any pid in use: pid_max's ceiling


def test_identity_tells_a_process_from_a_later_one_of_the_same_pid() -> None:
    me = Identity.of(os.getpid())
    assert me.alive()
    assert not Identity(me.pid, me.started - 1).alive()


def test_a_zombie_is_not_alive() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    identity = Identity.of(dead.pid)
    deadline = time.monotonic() + 15
    while identity.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not identity.alive()
    dead.wait()


def test_no_such_process() -> None:
    with pytest.raises(ProcessLookupError):
        Identity.of(GONE.pid)


def test_members_are_found_when_their_leader_is_gone(session: subprocess.Popen[str]) -> None:
    leader = Identity.of(session.pid)
    assert len(processes.members(leader)) == 2
    session.kill()
    session.wait()
    assert len(processes.members(leader)) == 1


def test_a_session_whose_number_was_reused_has_no_members(session: subprocess.Popen[str]) -> None:
    now = Identity.of(session.pid)
    assert processes.members(Identity(now.pid, now.started - 100)) == []


def test_sweep_kills_what_a_dead_shim_left_and_forgets(tmp_path: Path, session: subprocess.Popen[str]) -> None:
    leader = Identity.of(session.pid)
    write_record(tmp_path / "run", GONE, leader)
    expected = set(processes.members(leader))
    assert len(expected) == 2
    assert set(processes.left_over(tmp_path / "run")) == expected
    session_reaper = subprocess.Popen(["true"])  # any child: the sweep must not touch it
    killed = processes.sweep(tmp_path / "run")
    assert set(killed) == expected
    assert processes.left_over(tmp_path / "run") == []
    assert list((tmp_path / "run").iterdir()) == []
    assert session_reaper.wait() == 0


def test_sweep_kills_a_living_shim_and_its_descendants(tmp_path: Path) -> None:
    stands_in = subprocess.Popen([sys.executable, "-c", GROWN], stdout=subprocess.PIPE, text=True)
    assert stands_in.stdout is not None
    stands_in.stdout.readline()
    write_record(tmp_path / "run", Identity.of(stands_in.pid), GONE)
    assert len(processes.sweep(tmp_path / "run")) == 2
    stands_in.wait()
    stands_in.stdout.close()


def test_a_torn_record_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "one.process.json").write_text('{"name": "one", "shim": [1')
    assert processes.recorded(tmp_path) == {}
    assert processes.sweep(tmp_path) == []


def test_a_record_of_an_unrelated_process_kills_nobody(tmp_path: Path) -> None:
    bystander = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        now = Identity.of(bystander.pid)
        write_record(tmp_path / "run", Identity(now.pid, now.started - 5), Identity(now.pid, now.started - 5))
        assert processes.sweep(tmp_path / "run") == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_listener_names_the_process_that_has_the_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        assert processes.listener(server.getsockname()[1]) is None  # bound, not listening
        server.listen()
        found = processes.listener(server.getsockname()[1])
        assert found is not None
        assert found[0] == os.getpid()
        assert "python" in found[1] or "pytest" in found[1]


def test_command_of_is_short() -> None:
    assert len(processes.command_of(os.getpid())) <= 80
    assert processes.command_of(GONE.pid) == ""
