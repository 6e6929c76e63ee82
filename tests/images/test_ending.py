"""TERM in both images: PID 1 ends on it from the start of its Python on, whatever it was asked to run."""

from __future__ import annotations

import pytest

from tests.images.conftest import Image, run
from tests.images.ending import seconds_to_end

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MOST_S = 2.0
"""From TERM to the container's end."""


def ready(name: str) -> bool:
    """Whether the program in the container has said that it is."""
    return run("docker", "exec", name, "test", "-f", "/work/ready", check=False).returncode == 0


def test_term_ends_a_python_that_did_not_ask_for_it(image: Image) -> None:
    """An upkeep pod that waits for a server, a supervisor that is still importing: for PID 1 the kernel drops a TERM without a handler."""
    code = "import socket, pathlib; a, b = socket.socketpair(); pathlib.Path('ready').touch(); a.recv(1)"
    took, exit_code = seconds_to_end(image, ["python", "-c", code], ready)
    assert exit_code == 143
    assert took <= MOST_S


def test_a_program_that_has_a_handler_keeps_it(image: Image) -> None:
    code = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "pathlib.Path('ready').touch(); time.sleep(600)"
    )
    _, exit_code = seconds_to_end(image, ["python", "-c", code], ready)
    assert exit_code == 7
