"""Ends the chief when nothing has happened for long: TensorFlow blocks for ever on a peer that hangs without closing its connections.

No deadline inside TensorFlow reaches that (gRPC keep-alive and the operation time-out were tried), so a thread of ours watches.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable

from trainer.exit_codes import ExitCode

LIMIT_S = 300.0
"""Longer than any sane closure and than the first trace of a large model."""


class Watch:
    """A clock that somebody must touch."""

    def __init__(
        self, limit_s: float = LIMIT_S, end: Callable[[int], None] = os._exit, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._end, self._clock = limit_s, end, clock
        self._touched, self._doing = clock(), "starting"
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name="stall", daemon=True).start()

    def touch(self, doing: str) -> None:
        """Something was achieved; ``doing`` is what begins now."""
        self._touched, self._doing = self._clock(), doing

    def rest(self, doing: str) -> None:
        """What begins now has deadlines of its own, and may take long: S3."""
        self._touched, self._doing = math.inf, doing

    def stop(self) -> None:
        self._stopped.set()

    def _work(self) -> None:
        while not self._stopped.wait(min(1.0, self._limit / 4)):
            away = self._clock() - self._touched
            if away > self._limit:
                faulthandler.dump_traceback(file=sys.__stderr__ or 2)
                message = f"nothing happened for {away:.0f} s while {self._doing}: a replica hangs; ending so that all start anew"
                print(f"error: {message}", file=sys.stderr, flush=True)
                self._end(int(ExitCode.PEERS_MISSING))
                return
