"""The child, its process group, and orphans: plain process handling of a PID 1, also where it is not PID 1.

The main thread alone waits for processes (``reap`` takes whatever ended), so nothing here is called from another thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Has orphaned descendants become children of this process, as they do of a real PID 1."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Child:
    """A running command, leader of a process group and session of its own."""

    def __init__(self, command: Sequence[str], output: int, environ: Mapping[str, str]) -> None:
        """Starts it; both its output streams go to the file descriptor ``output``.

        Raises:
            OSError: it cannot be started.
        """
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environ), start_new_session=True
        )
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        """Sends a signal to the whole group; a group that is gone is no error."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def reaped(self, code: int) -> None:
        """Told by whoever reaped it, so that ``subprocess`` never waits for a pid that may be somebody else's by then."""
        self._process.returncode = code


def reap() -> dict[int, int]:
    """Takes every child that has ended: exit code by pid, as a shell counts (128 + n for signal n)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def kill_descendants(deadline_s: float = 2.0) -> list[int]:
    """Kills every process that is left below this one, also those that moved to sessions of their own; gives their pids.

    A killed process' children become ours, so this repeats until there are none.
    """
    killed: list[int] = []
    until = time.monotonic() + deadline_s
    while True:
        reap()
        left = children(os.getpid())
        if not left or time.monotonic() > until:
            return killed
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if pid not in killed:
                killed.append(pid)
        time.sleep(0.01)


def children(parent: int) -> list[int]:
    """The living children of a process (zombies are not)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (name, which may hold anything) state parent …
            state, ppid = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != b"Z":
            found.append(int(entry.name))
    return found
