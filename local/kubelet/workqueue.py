"""A queue of keys for a few threads: a key is never worked on by two at once, and added meanwhile it comes again.

The same idea as client-go's workqueue: what is queued is *that* something changed, not what.
"""

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

RETRY_S = 2.0
"""After an error nobody foresaw in a handler."""


class WorkQueue:
    """Calls `handle(key)` for every key added; the handler may return seconds after which the key is due again."""

    def __init__(self, name: str, handle: Callable[[str], float | None], threads: int) -> None:
        self._name = name
        self._handle = handle
        self._count = threads
        self._ready: deque[str] = deque()
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._condition = threading.Condition(threading.RLock())
        self._stopped = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        self._threads = [threading.Thread(target=self._work, name=f"{self._name}-{index}", daemon=True) for index in range(self._count)]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Let the threads end after what they do now."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(timeout)

    def add(self, key: str) -> None:
        """Have the key handled as soon as a thread is free."""
        with self._condition:
            if key in self._working:
                self._again.add(key)
            elif key not in self._waiting:
                self._waiting.add(key)
                self._ready.append(key)
                self._condition.notify()

    def add_after(self, key: str, seconds: float) -> None:
        """Have the key handled in `seconds`, unless that is sooner anyhow."""
        due = time.monotonic() + seconds
        with self._condition:
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, key))
                self._condition.notify()

    def _next(self) -> str | None:
        """The next key; blocks. None when the queue is stopped."""
        with self._condition:
            while not self._stopped:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    due, key = heapq.heappop(self._later)
                    if self._due.get(key) == due:
                        del self._due[key]
                        self.add(key)
                if self._ready:
                    key = self._ready.popleft()
                    self._waiting.discard(key)
                    self._working.add(key)
                    return key
                self._condition.wait(self._later[0][0] - now if self._later else None)
            return None

    def _work(self) -> None:
        while (key := self._next()) is not None:
            again: float | None = RETRY_S
            try:
                again = self._handle(key)
            except Exception:
                # One pod's trouble must not end the thread that serves all.
                log.exception("%s: %s failed; again in %.0f s", self._name, key, RETRY_S)
            with self._condition:
                self._working.discard(key)
                repeat = key in self._again
                self._again.discard(key)
            if repeat:
                self.add(key)
            if again is not None:
                self.add_after(key, again)
