"""A chief that starts itself anew: how often, and that nothing but its standard streams goes over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.engine.anew import MOST, VARIABLE, Losses
from trainer.errors import PeersMissingError

SOURCES = Path(__file__).parents[5] / "images" / "trainer" / "src"


def test_losses_in_a_row_are_bounded() -> None:
    losses = Losses()
    for _ in range(MOST):
        losses = losses.another(100, "ps-0: UnavailableError")
    with pytest.raises(PeersMissingError, match=f"lost {MOST + 1} times, with no checkpoint in between: ps-0"):
        losses.another(100, "ps-0: UnavailableError")


def test_a_checkpoint_in_between_begins_a_new_row() -> None:
    losses = Losses(count=MOST, saved=100).another(150, "")
    assert losses == Losses(count=1, saved=150)


def test_the_same_process_runs_the_same_command_without_the_old_sockets(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import os, socket, sys
from trainer.engine.anew import Losses, start
lost = Losses.read()
port = int(sys.argv[1])
one = socket.create_server(("127.0.0.1", port))  # fails if the first life's is still open
os.set_inheritable(one.fileno(), True)
print(os.getpid(), lost.count, sys.argv[1:], flush=True)
if lost.count < 2:
    start(lost.another(0, ""))
""")
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environ = {key: value for key, value in os.environ.items() if key != VARIABLE} | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, str(program), port, "x"], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == ["0", "1", "2"]
    assert len({line[0] for line in lines}) == 1, "one process"
    assert {line[2] for line in lines} == {f"['{port}', 'x']"}
