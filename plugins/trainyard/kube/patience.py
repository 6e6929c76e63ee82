"""How long to go on asking something that does not answer, and how often."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


class Patience:
    """Waits with growing, jittered pauses until ``seconds`` have passed.

    ``seconds`` counts from the first :meth:`wait`: what went well before costs nothing.
    """

    def __init__(self, seconds: float, first: float = 0.2, most: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> None:
        self.seconds = seconds
        self._pause = first
        self._most = most
        self._sleep = sleep
        self._ends: float | None = None

    def wait(self) -> bool:
        """Pause once; False when the time is over (then without a pause)."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self.seconds
        if now >= self._ends:
            return False
        # Full jitter: many clients that lost the same server must not come back in step.
        self._sleep(min(self._pause * random.uniform(0.5, 1.0), self._ends - now))
        self._pause = min(self._pause * 2, self._most)
        return True
