"""What `kubectl logs` asks for, taken from a container's log file: tail, since, timestamps, limit, and following it as it grows.

Not here: the file's format (logformat.py) and HTTP (server.py).
"""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from local.kubelet.logformat import parse

_BLOCK = 1 << 16
_QUICK_S, _SLOW_S = 0.05, 0.25
"""How often a followed file is looked at: while it grows, and after a while of silence."""


class BadQuery(ValueError):
    """A parameter of the request is wrong; the message names it."""


@dataclass(frozen=True)
class LogQuery:
    """The parameters of PodLogOptions that a kubelet gets."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: bytes | None = None
    """RFC 3339 time, as written in the file: entries before it are left out."""

    @classmethod
    def parse(cls, values: dict[str, str], now: datetime.datetime) -> "LogQuery":
        """Read a request's query. Raises BadQuery."""
        since = None
        if "sinceSeconds" in values and "sinceTime" in values:
            raise BadQuery("at most one of `sinceTime` or `sinceSeconds` may be specified")
        if seconds := _number(values, "sinceSeconds", least=1):
            since = now - datetime.timedelta(seconds=seconds)
        if text := values.get("sinceTime"):
            try:
                since = datetime.datetime.fromisoformat(text)
            except ValueError as problem:
                raise BadQuery(f"sinceTime: {text!r} is not an RFC 3339 time") from problem
        return cls(
            follow=_flag(values, "follow"),
            timestamps=_flag(values, "timestamps"),
            tail_lines=_number(values, "tailLines", least=0),
            limit_bytes=_number(values, "limitBytes", least=1),
            since=since.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if since else None,
        )


def _flag(values: dict[str, str], name: str) -> bool:
    text = values.get(name, "false")
    if text not in ("true", "false", "1", "0"):
        raise BadQuery(f"{name}: {text!r} is not true or false")
    return text in ("true", "1")


def _number(values: dict[str, str], name: str, least: int) -> int | None:
    if name not in values:
        return None
    try:
        number = int(values[name])
    except ValueError as problem:
        raise BadQuery(f"{name}: {values[name]!r} is not a whole number") from problem
    if number < least:
        raise BadQuery(f"{name}: {number} must be {least} or more")
    return number


def tail_offset(path: Path, lines: int) -> int:
    """Where the last `lines` entries of the file begin, read backwards in blocks."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        if lines == 0:
            return end
        position, seen = end, 0
        while position > 0:
            start = max(0, position - _BLOCK)
            file.seek(start)
            block = file.read(position - start)
            # The newline that ends the file ends its last entry; it starts none.
            index = len(block) - 1 if position == end and block.endswith(b"\n") else len(block)
            while (index := block.rfind(b"\n", 0, index)) >= 0:
                seen += 1
                if seen == lines:
                    return start + index + 1
            position = start
    return 0


class Renderer:
    """Turns entries of the file into what kubectl shows."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._line_begins = True

    def render(self, entry: bytes) -> bytes:
        """One entry; empty where it is left out or torn. A long line in parts gets one time, at its beginning."""
        found = parse(entry)
        if found is None:
            return b""
        time, _, ends_line, text = found
        if self._query.since is not None and time < self._query.since:
            return b""
        prefix = time + b" " if self._query.timestamps and self._line_begins else b""
        self._line_begins = ends_line
        return prefix + text + (b"\n" if ends_line else b"")


def tail_text(path: Path, lines: int, limit: int) -> bytes:
    """The text of the last lines, at most `limit` bytes of it; empty where there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(tail_offset(path, lines))
            renderer = Renderer(LogQuery())
            text = b"".join(renderer.render(entry) for entry in file.read().split(b"\n"))
    except OSError:
        return b""
    return text[-limit:]


async def read(path: Path, query: LogQuery, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log as it was asked for, in pieces. When following, until `ended()` and all is read."""
    left = query.limit_bytes
    renderer, rest, quiet = Renderer(query), b"", 0
    with path.open("rb") as file:
        if query.tail_lines is not None:
            file.seek(tail_offset(path, query.tail_lines))
        while True:
            last_look = ended()  # asked before reading: what was written before the end is read after it
            data = file.read(_BLOCK)
            if data:
                quiet = 0
                *entries, rest = (rest + data).split(b"\n")
                out = b"".join(renderer.render(entry) for entry in entries)
                if left is not None:
                    out = out[:left]
                    left -= len(out)
                if out:
                    yield out
                if left == 0:
                    return
            elif not query.follow or last_look:
                return
            else:
                quiet += 1
                await asyncio.sleep(_QUICK_S if quiet < 20 else _SLOW_S)
