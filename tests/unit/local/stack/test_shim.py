"""The shim with real processes: whatever a program starts, nothing of it outlives the shim, and nobody outlives the shim's parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local.stack import shim
from local.stack.processes import Identity

FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if {deaf} else signal.SIG_DFL)
# A child in a session of its own, a grandchild whose parent is gone: what a group's kill would miss.
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
time.sleep({life})
sys.exit({code})
"""


def until(condition: Callable[[], bool], what: str, bound_s: float = 15) -> None:
    deadline = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {bound_s} s: {what}"
        time.sleep(0.02)


class Shimmed:
    """A program under a shim, started by this process."""

    def __init__(self, folder: Path, program: list[str], grace_s: float = 5.0) -> None:
        self.record, self.log = folder / "one.process.json", folder / "one.log"
        self.process = subprocess.Popen(command(folder, program, os.getpid(), grace_s), start_new_session=True)
        self.family: list[Identity] = []

    def grown(self, members: int) -> None:
        """Waits for that many descendants and remembers them."""
        until(lambda: self.record.exists() and len(shim.descendants(self.process.pid)) >= members, f"{members} descendants")
        self.family = [Identity.of(pid) for pid in shim.descendants(self.process.pid)]

    def all_gone(self) -> bool:
        return not any(member.alive() for member in self.family)

    @property
    def main(self) -> int:
        return int(json.loads(self.record.read_text())["main"][0])


def command(folder: Path, program: list[str], parent: int, grace_s: float = 5.0) -> list[str]:
    words = [sys.executable, "-I", "-S", shim.__file__, "--name", "one", "--record", str(folder / "one.process.json")]
    return [*words, "--log", str(folder / "one.log"), "--grace", str(grace_s), "--parent", str(parent), "--", *program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Shimmed]]:
    started: list[Shimmed] = []

    def make(program: list[str], grace_s: float = 5.0) -> Shimmed:
        started.append(Shimmed(tmp_path, program, grace_s))
        return started[-1]

    yield make
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        for member in one.family:
            if member.alive():
                os.kill(member.pid, signal.SIGKILL)


def family(*, deaf: bool = False, life: float = 600, code: int = 0) -> list[str]:
    return [sys.executable, "-c", FAMILY.format(deaf=deaf, life=life, code=code)]


def test_exit_code_and_output_are_the_programs(start: Callable[..., Shimmed]) -> None:
    one = start([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"])
    assert one.process.wait(15) == 7
    assert sorted(one.log.read_text().split()) == ["err", "out"]
    assert not one.record.exists()


def test_a_signal_of_the_program_is_128_plus_it(start: Callable[..., Shimmed]) -> None:
    one = start([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
    assert one.process.wait(15) == 128 + signal.SIGKILL


def test_a_program_that_does_not_exist_is_said(start: Callable[..., Shimmed]) -> None:
    one = start(["/no/such/program"])
    assert one.process.wait(15) == 127
    assert "cannot start /no/such/program" in one.log.read_text()


def test_term_ends_the_whole_family(start: Callable[..., Shimmed]) -> None:
    one = start(family())
    one.grown(3)
    one.process.terminate()
    assert one.process.wait(15) == 128 + signal.SIGTERM
    assert one.all_gone()


def test_after_the_grace_a_deaf_program_is_killed(start: Callable[..., Shimmed]) -> None:
    one = start(family(deaf=True), grace_s=0.3)
    one.grown(3)
    one.process.terminate()
    assert one.process.wait(15) == 128 + signal.SIGKILL
    assert one.all_gone()


def test_what_a_program_leaves_behind_when_it_ends_is_killed(start: Callable[..., Shimmed]) -> None:
    one = start(family(life=1.5, code=3))
    one.grown(3)
    assert one.process.wait(15) == 3
    assert one.all_gone()


def test_a_killed_shim_takes_the_program_with_it(start: Callable[..., Shimmed]) -> None:
    one = start([sys.executable, "-c", "import time; time.sleep(600)"])
    one.grown(1)
    one.process.kill()
    until(one.all_gone, "the program is gone")


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    """The starter dies by SIGKILL while the program is deaf to everything that can be ignored."""
    words = command(tmp_path, family(deaf=True), 0)
    place = words.index("--parent") + 1
    starter = f"import os, subprocess, time\nw = {words!r}\nw[{place}] = str(os.getpid())\n"
    starter += "subprocess.Popen(w, start_new_session=True)\ntime.sleep(600)\n"
    parent = subprocess.Popen([sys.executable, "-c", starter])
    try:
        until(lambda: len(shim.descendants(parent.pid)) >= 4, "shim, program and its family")
        everyone = [Identity.of(pid) for pid in shim.descendants(parent.pid)]
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(member.alive() for member in everyone), "everyone is gone")


def test_it_does_not_start_for_a_parent_that_is_gone_already(tmp_path: Path) -> None:
    words = command(tmp_path, [sys.executable, "-c", "open('ran', 'w')"], 2)
    assert subprocess.run(words, cwd=tmp_path, timeout=15).returncode == 1
    assert not (tmp_path / "ran").exists()


def test_the_program_has_no_inherited_deafness_and_no_input(start: Callable[..., Shimmed]) -> None:
    text = (
        "import signal, sys; "
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGHUP), "
        "signal.pthread_sigmask(signal.SIG_BLOCK, []), repr(sys.stdin.read()))"
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        one = start([sys.executable, "-c", text])
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGHUP, before[1])
    assert one.process.wait(15) == 0
    assert one.log.read_text().split() == ["True", "0", "set()", "''"]


def test_descendants_leaves_zombies_out_but_not_what_is_below_them() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    try:
        until(lambda: shim.stat_fields(dead.pid)[0] == "Z", "it has ended and waits to be reaped")
        assert dead.pid not in shim.descendants(os.getpid())
    finally:
        dead.wait()
