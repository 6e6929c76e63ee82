"""What happens while the platform starts and stops, told to a person (plain lines) or to a program (`--json`: one event a line).

Events: {"event": "phase", "name", "state": "start|done|failed", "seconds", "detail"}, {"event": "progress", "name", "done", "total",
"detail"}, {"event": "note", "message"}, {"event": "up", …state…}, {"event": "error", "message"}.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class StackError(Exception):
    """Something a person can act on: one line that names what is wrong and the way out."""


class Reporter:
    """Writes events to a stream. Losing the reader is not ours to hide: BrokenPipeError goes to the caller, who ends the start-up."""

    def __init__(self, stream: TextIO = sys.stdout, *, as_json: bool = False) -> None:
        self.stream = stream
        self.as_json = as_json
        self._last: tuple[str, float] = ("", 0.0)

    def emit(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}) if self.as_json else self._plain(event, fields)
        if line:
            self.stream.write(line + "\n")
            self.stream.flush()

    def reader_gone(self) -> bool:
        """True when the stream is a pipe whose reader has died: noticed without writing to it."""
        try:
            poll = select.poll()
            poll.register(self.stream.fileno(), 0)
            return any(events & select.POLLERR for _, events in poll.poll(0))
        except (OSError, ValueError):  # no file at all (a string buffer): nobody to lose
            return False

    def note(self, message: str) -> None:
        self.emit("note", message=message)

    def progress(self, name: str, done: int, total: int, detail: str = "") -> None:
        """Progress within a phase; plain output keeps to one line every two seconds."""
        if not self.as_json and done < total and self._last[0] == name and time.monotonic() - self._last[1] < 2:
            return
        self._last = (name, time.monotonic())
        self.emit("progress", name=name, done=done, total=total, detail=detail)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        """Reports start, and end with its seconds; a failure is reported and passed on."""
        began = time.monotonic()
        self.emit("phase", name=name, state="start", detail=detail)
        try:
            yield
        except BaseException as error:
            if not isinstance(error, BrokenPipeError):
                self.emit("phase", name=name, state="failed", seconds=round(time.monotonic() - began, 1), detail=str(error))
            raise
        self.emit("phase", name=name, state="done", seconds=round(time.monotonic() - began, 1), detail=detail)

    @staticmethod
    def _plain(event: str, fields: dict[str, Any]) -> str:
        if event == "phase":
            if fields["state"] == "start":
                return f"  … {fields['name']}{': ' + fields['detail'] if fields['detail'] else ''}"
            mark = "✓" if fields["state"] == "done" else "✗"
            return f"  {mark} {fields['name']} ({fields['seconds']} s)"  # why it failed is the error that follows
        if event == "progress":
            return f"    {fields['name']} {fields['done']}/{fields['total']} {fields['detail']}".rstrip()
        if event in ("note", "error"):
            return str(fields["message"])
        return ""  # "up" is for programs: the caller prints the address and how to log in
