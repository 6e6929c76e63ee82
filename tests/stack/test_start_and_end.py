"""Its starts and its ends: interrupted, twice at once, tied to a parent, on a full disk, over what an earlier one left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures.platform import CHECKOUT, clean_environment, until
from tests.stack.support import UP_WITHIN_S, Stack


def test_down_of_what_is_not_up(fresh: Stack) -> None:
    done = fresh.call("down")
    assert done.returncode == 0
    assert "was not up" in done.stdout
    assert fresh.status()[0] == 3


@pytest.mark.parametrize(
    ("number", "phase"), [(signal.SIGINT, "Kubernetes control plane"), (signal.SIGTERM, "node"), (signal.SIGKILL, "node")]
)
def test_an_interrupted_up_leaves_nothing(fresh: Stack, number: signal.Signals, phase: str) -> None:
    up = fresh.spawn(*fresh.up_words())
    assert up.stdout is not None
    for line in up.stdout:
        event = json.loads(line)
        if event["event"] == "phase" and event["name"] == phase:
            break
    up.send_signal(number)
    assert up.wait(60) != 0
    fresh.nothing_lives()
    up.communicate()
    assert fresh.up().returncode == 0  # and the next start is not in its way


def test_an_up_while_another_starts_says_so(fresh: Stack) -> None:
    first = fresh.spawn(*fresh.up_words())
    until(lambda: (fresh.state / "state.json").exists() or first.poll() is not None, 60, "the first has begun")
    second = fresh.up()
    out, err = first.communicate(timeout=UP_WITHIN_S)
    assert first.returncode == 0, out + err
    # The first may have been up already when the second looked: then that is what it says.
    if second.returncode != 0:
        assert second.returncode == 3
        assert "is being started by pid" in second.stdout


def test_a_tied_stack_ends_with_its_parent(fresh: Stack) -> None:
    words = fresh.command(*fresh.up_words("--foreground", "--tied"))
    text = f"import subprocess, time; subprocess.Popen({words!r}, start_new_session=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", text], cwd=CHECKOUT, env=clean_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        for line in parent.stdout:
            if json.loads(line)["event"] == "up":
                break
        assert fresh.status()[0] == 0
    finally:
        parent.kill()
        parent.wait()
    fresh.nothing_lives()
    assert fresh.document()["phase"] == "down"  # it ended in order
    parent.stdout.close()


def test_a_full_disk_is_one_line(fresh: Stack, tmp_path: Path) -> None:
    """A file system of 1 MB, where this machine lets us mount one."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        fresh.state = small / "var"
        done = fresh.up()
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "no space left for the platform" in done.stderr
        assert not fresh.living()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
        fresh.state = tmp_path / "var"


def test_a_left_over_socket_file_is_no_obstacle(fresh: Stack) -> None:
    for name in ("run", "kube/etcd"):
        (fresh.state / name).mkdir(parents=True)
    for path in (fresh.state / "run" / "control.sock", fresh.state / "kube" / "etcd" / "etcd.sock:0"):
        here = os.getcwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path.name)
        os.chdir(here)
    began = time.monotonic()
    done = fresh.up()
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 120
