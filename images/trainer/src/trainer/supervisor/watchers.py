"""What may end a child from outside: a watcher looks at something in a thread of its own and may reach a verdict.

The gang's watch on S3 is one. A watch on the child's heartbeat is another of the same kind: it is told of each child by ``child_began``
and kills one that hangs, which is then a death by signal like any other, with the same restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The child is to be ended, and the container with it."""

    exit_code: int
    message: str


class Watcher:
    """Calls ``look`` every ``every_s`` seconds until it gives a verdict, or until it is stopped."""

    def __init__(self, name: str, every_s: float) -> None:
        self._name, self._every_s = name, every_s
        self._stopped = threading.Event()
        self._hurry = threading.Event()
        self._verdict: Verdict | None = None
        self._notify: Callable[[], None] = lambda: None
        self.looks = 0
        """Looks that were begun and have ended."""

    def start(self, notify: Callable[[], None]) -> None:
        """Begins to look; ``notify`` is called (from its thread) after every look that was hurried, and when there is a verdict."""
        self._notify = notify
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._hurry.set()

    def hurry(self) -> None:
        """Has the next look begin at once."""
        self._hurry.set()

    def child_began(self, pid: int) -> None:
        """Told of each child; most watchers do not care."""

    @property
    def ended(self) -> bool:
        """Whether it looks no more."""
        return self._stopped.is_set() or self._verdict is not None

    @property
    def verdict(self) -> Verdict | None:
        return self._verdict

    def look(self) -> Verdict | None:
        """One look. What it raises is passed over: the next look may succeed."""
        raise NotImplementedError

    def _work(self) -> None:
        while not self._stopped.is_set():
            hurried = self._hurry.is_set()
            self._hurry.clear()
            try:
                self._verdict = self.look()
            except Exception:  # S3 away for a while changes nothing: a watcher that cannot see has no verdict
                pass
            self.looks += 1
            if self._verdict is not None or hurried:
                self._notify()
            if self._verdict is not None:
                return
            self._hurry.wait(self._every_s)
