"""Signals, exit codes, orphans and the termination message: what a PID 1 owes its container."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.images.trainer.supervisor.conftest import SOURCE, Containers, alive, until


@pytest.mark.parametrize("code", [0, 1, 40, 45, 90])
def test_the_containers_exit_code_is_the_commands(containers: Containers, code: int) -> None:
    assert containers.start(f"raise SystemExit({code})").wait() == code


def test_term_reaches_the_group_and_ends_with_143(containers: Containers) -> None:
    container = containers.start(
        "import signal, subprocess, sys, time\n"
        "def bye(*_): print('got TERM'); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "grandchild = subprocess.Popen(['sleep', '600'])\n"
        "print('pid', grandchild.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    container.until_printed(b"pid")
    grandchild = int(container.printed().split()[1])
    container.terminate()
    assert container.wait() == 143
    assert b"got TERM" in container.logs.text("prepare")
    assert not alive(grandchild)
    end = container.logs.end("prepare")
    assert end is not None
    assert end["exit_code"] == 143


def test_a_command_that_ignores_term_is_killed_within_the_grace(containers: Containers) -> None:
    container = containers.start(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\nwhile True: time.sleep(1)"
    )
    container.until_printed(b"ready")
    container.terminate()
    assert container.wait(30) == 143


def test_orphans_are_reaped_and_what_is_left_is_killed(containers: Containers) -> None:
    container = containers.start(
        "import os, subprocess, time\n"
        # Ten orphans that end by themselves, and one in a session of its own that would stay for ever.
        "for _ in range(10): subprocess.run(['sh', '-c', 'sleep 0.1 & '])\n"
        "subprocess.run(['sh', '-c', 'setsid sleep 600 & echo pid $!'])\n"
        "time.sleep(1.5)\n"
        "print('all orphans have ended')\n"
        "time.sleep(3)\n"
    )
    container.until_printed(b"pid")
    stray = int(container.printed().split()[1])
    container.until_printed(b"all orphans have ended")
    assert _zombies_of(container.pid) == []
    assert alive(stray)
    assert container.wait() == 0
    assert not alive(stray)
    assert f"killed 1 processes that the command left behind: {stray}".encode() in container.logs.text("prepare")


def test_the_child_dies_with_a_supervisor_that_is_killed(containers: Containers) -> None:
    # trainer.cli asks the kernel for it; a stand-in for a long step does the same call.
    container = containers.start(
        "import os, time\nfrom trainer.cli import _die_with_supervisor\n_die_with_supervisor()\nprint('pid', os.getpid())\ntime.sleep(600)"
    )
    container.until_printed(b"pid")
    child = int(container.printed().split()[1])
    container.process.kill()
    container.wait()
    until(lambda: not alive(child), "the child's death", 20)


def test_the_termination_message_is_the_error_line(containers: Containers) -> None:
    container = containers.start(
        "import sys\nprint('x')\nprint('error: model.build: no such thing', file=sys.stderr)\nprint('noise')\nsys.exit(40)"
    )
    assert container.wait() == 40
    assert container.message() == "model.build: no such thing"


def test_the_termination_message_of_a_bug_is_the_end_of_its_traceback(containers: Containers) -> None:
    container = containers.start("def f(): raise ValueError('so it is')\nf()")
    assert container.wait() == 1
    assert container.message().endswith("ValueError: so it is")


def test_a_good_end_leaves_no_message(containers: Containers) -> None:
    container = containers.start("print('error: only said')")
    assert container.wait() == 0
    assert container.message() == ""


def test_a_death_without_a_word_is_named(containers: Containers) -> None:
    container = containers.start("import os; os.kill(os.getpid(), 9)")
    assert container.wait() == 137
    assert container.message() == "ended with 137 (Killed) and wrote nothing"


def test_a_step_is_not_restarted(containers: Containers) -> None:
    container = containers.start("import os\nopen('lives', 'a').write('x')\nos.kill(os.getpid(), 9)")
    assert container.wait() == 137
    assert (container.folder / "lives").read_text() == "x"


def test_a_command_that_does_not_exist_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainer.supervisor", "--", "/no/such/program"],
        cwd=tmp_path, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 127
    assert "/no/such/program cannot be started" in done.stdout


def test_without_a_run_spec_it_only_supervises(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainer.supervisor", "--", sys.executable, "-c", "print('hello'); raise SystemExit(3)"],
        cwd=tmp_path, env={"PYTHONPATH": str(SOURCE), "TRAINYARD_RUN_SPEC": "{broken"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "hello\n")


def test_nothing_heavy_is_imported_on_the_main_thread() -> None:
    """The child must start at once: boto3 alone is half a second."""
    code = (
        "import sys, trainer.supervisor.__main__\n"
        "print([m for m in ('boto3', 'botocore', 'tensorflow', 'numpy', 'keras') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def _zombies_of(parent: int) -> list[int]:
    time.sleep(0.3)
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                state, ppid = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if int(ppid) == parent and state == b"Z":
                found.append(int(name))
    return found
