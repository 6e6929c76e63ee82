"""The child's output: read from its pipe, handed to the spool, passed on to the container's own stdout, and its end kept.

One pipe serves both streams, so their order is kept. What the child wrote before it was killed lies in the pipe and is read all the
same.
"""

from __future__ import annotations

import fcntl
import os
import select
import threading
from collections.abc import Callable
from typing import Final

_READ_BYTES: Final = 256 * 1024
_PIPE_BYTES: Final = 1024 * 1024
TAIL_BYTES: Final = 16 * 1024
MESSAGE_BYTES: Final = 4096
"""What Kubernetes keeps of a termination message."""
ERROR_PREFIX: Final = b"error: "
"""Begins the one line with which ``trainer.cli`` ends on an error of ours."""


class Output:
    """Reads a pipe in a thread of its own until every writer has closed it."""

    def __init__(self, sink: Callable[[bytes], None], stdout: int | None = 1) -> None:
        """``sink`` gets every byte; ``stdout`` is the file descriptor it is passed on to, None for nowhere."""
        self._sink = sink
        self._stdout = stdout
        self._reader, self.writer = os.pipe()
        try:
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # a smaller pipe works as well
        self._lock = threading.Lock()
        self._tail = bytearray()
        self._ends_line = True
        self._thread = threading.Thread(target=self._pump, name="output", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """A line of the supervisor's own, in the log and on stdout."""
        with self._lock:
            start = b"" if self._ends_line else b"\n"
            self._emit(start + f"[supervisor] {line}\n".encode())

    def child_begins(self) -> None:
        """What is kept for the message is the present child's."""
        with self._lock:
            self._tail.clear()

    def close(self, deadline_s: float) -> None:
        """Reads what is left in the pipe; every other writer must be gone."""
        os.close(self.writer)
        self._thread.join(deadline_s)

    def message(self) -> str:
        """Why the child ended, in its own words: its last ``error:`` line, else its last lines, at most ``MESSAGE_BYTES``."""
        with self._lock:
            tail = bytes(self._tail)
        lines = [line for line in tail.splitlines() if line.strip()]
        for line in reversed(lines):
            if line.startswith(ERROR_PREFIX):
                return _text(line.removeprefix(ERROR_PREFIX)[:MESSAGE_BYTES])
        return _text(b"\n".join(lines[-20:])[-MESSAGE_BYTES:])

    def _pump(self) -> None:
        while data := os.read(self._reader, _READ_BYTES):
            with self._lock:
                self._tail += data[-TAIL_BYTES:]
                del self._tail[:-TAIL_BYTES]
                self._emit(data)
        os.close(self._reader)

    def _emit(self, data: bytes) -> None:
        try:
            self._sink(data)
        except Exception as error:  # a bug of ours must not stop the reading: the child would stand still at a full pipe
            self._sink = lambda data: None
            data += f"\n[supervisor] the log is kept no longer: {type(error).__name__}: {error}\n".encode()
        self._ends_line = data.endswith(b"\n")
        view = memoryview(data)
        while view and self._stdout is not None:
            try:
                view = view[os.write(self._stdout, view) :]
            except BlockingIOError:
                select.select([], [self._stdout], [])
            except OSError:
                self._stdout = None  # nobody reads the live stream any more; the log in S3 goes on


def _text(data: bytes) -> str:
    return data.decode(errors="replace").strip()
