"""Prints the logs of a run's replicas, as they were written and while they are written.

Bytes come by cursor (:meth:`trainyard.cli.client.Client.log`), so a follower that was cut off goes on where it was, and no line is
printed twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from trainyard.errors import UnavailableError

POLL_S = 1.0
AWAY_LIMIT_S = 180.0

Read = Callable[[str, str], tuple[bytes, str, str]]
"""``(replica, cursor) -> (bytes, next cursor, more | waiting | ended)``."""


class Lines:
    """Bytes of one replica cut into lines: a chunk ends anywhere, and two replicas must not meet inside a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield line + b"\n"

    def end(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest + b"\n"
        self._rest = b""


def write(
    read: Read,
    replicas: Callable[[], tuple[list[str], bool]],
    *,
    prefix: bool,
    follow: bool,
    into: BinaryIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Writes the logs of ``replicas()``, which also says whether others may still come.

    With ``follow`` it goes on until none may come and all have ended; a replica that ended is looked at again, since its task may be
    tried again.

    Raises:
        UnavailableError: Airflow was away for longer than :data:`AWAY_LIMIT_S`.
    """
    into = into or sys.stdout.buffer
    cursors: dict[str, str] = {}
    lines: dict[str, Lines] = {}
    away_since: float | None = None
    while True:
        try:
            names, going_on = replicas()
            for name in names:
                cut = lines.setdefault(name, Lines())
                mark = f"[{name}] ".encode() if prefix else b""
                state = "more"
                while state == "more":
                    data, cursors[name], state = read(name, cursors.get(name, ""))
                    into.writelines(mark + line for line in cut.feed(data))
                if state == "ended" or not follow:
                    into.writelines(mark + line for line in cut.end())
                going_on |= state == "waiting"
            into.flush()
            away_since = None
        except UnavailableError:
            away_since = clock() if away_since is None else away_since
            if not follow or clock() - away_since > AWAY_LIMIT_S:
                raise
            going_on = True
        if not follow or not going_on:
            return
        sleep(POLL_S)
