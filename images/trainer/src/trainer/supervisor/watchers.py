"""What may end a child from outside: a watcher looks at something in a thread of its own and may reach a verdict.

The gang's watch on S3 is one. A watch on the child's heartbeat (a hang becomes a death) is another of the same kind: it is given the
child by ``child_began``, and its verdict names STALLED instead of an exit code that is final.
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
        self._verdict: Verdict | None = None
        self._notify: Callable[[], None] = lambda: None

    def start(self, notify: Callable[[], None]) -> None:
        """Begins to look; ``notify`` is called (from its thread) when there is a verdict."""
        self._notify = notify
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def verdict(self) -> Verdict | None:
        return self._verdict

    def look(self) -> Verdict | None:
        """One look. What it raises is passed over: the next look may succeed."""
        raise NotImplementedError

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                found = self.look()
            except Exception:  # S3 away for a while changes nothing: a watcher that cannot see has no verdict
                found = None
            if found is not None:
                self._verdict = found
                self._notify()
                return
            self._stopped.wait(self._every_s)
