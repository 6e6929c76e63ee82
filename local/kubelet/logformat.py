"""A container's log file as the CRI defines it: `<RFC 3339 time> <stdout|stderr> <F|P> <text>`, one entry a line.

`P` marks a part of a line: of one longer than 16 KiB, or of a last line that was never ended (as containerd has it).
This module writes and parses entries; logs.py selects them for `kubectl logs`.
Standard library only: the shims use it.
"""

import os
import time
from pathlib import Path
from types import TracebackType

MAX_ENTRY = 16 * 1024
"""Bytes of text in one entry, as containerd has it."""


def timestamp(nanoseconds: int) -> str:
    """A time in nanoseconds since the epoch as `2026-01-02T03:04:05.678901234Z`."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


class LineWriter:
    """Appends what a container writes to its log file, each line with the time at which it was read.

    A full disk must not stop a container that only wanted to print: what cannot be written is dropped, and said in the log once
    there is room again.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._rest: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._dropped = 0

    def write(self, stream: str, data: bytes) -> None:
        """Take the next bytes of `stream` (stdout or stderr)."""
        lines = (self._rest[stream] + data).split(b"\n")
        last = lines.pop()
        mark = f"{timestamp(time.time_ns())} {stream} ".encode()
        entries: list[bytes] = []
        for line in lines:
            if len(line) > MAX_ENTRY:
                line = self._cut(line, mark, entries)
            # containerd reads lines so, and what it does not show nobody should come to rely on here.
            line = line.removesuffix(b"\r")
            entries.append(b"%sF %s\n" % (mark, line))
        if len(last) > MAX_ENTRY:
            last = self._cut(last, mark, entries)
        self._rest[stream] = last
        if entries:
            self._append(b"".join(entries))

    @staticmethod
    def _cut(line: bytes, mark: bytes, entries: list[bytes]) -> bytes:
        """Put all of a long line but its end into entries marked as parts; return the end."""
        while len(line) > MAX_ENTRY:
            entries.append(b"%sP %s\n" % (mark, line[:MAX_ENTRY]))
            line = line[MAX_ENTRY:]
        return line

    def _append(self, data: bytes) -> None:
        try:
            if self._dropped:
                note = f"{timestamp(time.time_ns())} stderr F [the disk was full: {self._dropped} bytes of this log are missing here]\n"
                os.write(self._fd, note.encode())
                self._dropped = 0
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._dropped += len(data)

    def __enter__(self) -> "LineWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Write what came without a line end, as a part, so that a reader adds none; and close."""
        for stream, rest in self._rest.items():
            if rest:
                self._append(f"{timestamp(time.time_ns())} {stream} P ".encode() + rest + b"\n")
        os.close(self._fd)


def parse(entry: bytes) -> tuple[bytes, bytes, bool, bytes] | None:
    """Split one entry (its newline not included) into time, stream, whether it ends a line, and text. None where it is torn."""
    parts = entry.split(b" ", 3)
    if len(parts) != 4:
        return None
    return parts[0], parts[1], parts[2] == b"F", parts[3]
