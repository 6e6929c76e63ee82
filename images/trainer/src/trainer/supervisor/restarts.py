"""Which ends of a gang replica's child are worth another try in place: a Job needs about ten seconds to replace a pod.

Small faults only: a death by signal, S3 away, and for PS and workers a chief that went (it may be restarted by its own supervisor; the
fresh server also forgets the variables a dead chief left behind). Final codes and bugs never. Steps are never restarted here: Airflow
retries them.
"""

from __future__ import annotations

import time
from typing import Final

from trainer.environment import CHIEF
from trainer.exit_codes import ExitCode

MOST: Final = 3
"""Restarts in a row."""
QUIET_S: Final = 900.0
"""A child that lived this long begins a new row."""
FIRST_WAIT_S: Final = 1.0


class Restarts:
    """Counts the restarts of one replica."""

    def __init__(self, role: str | None, *, most: int = MOST, first_wait_s: float = FIRST_WAIT_S) -> None:
        self._role, self._most, self._first_wait_s = role, most, first_wait_s
        self.count = 0
        """Restarts in the present row."""

    def wait_before_next(self, exit_code: int, started: float) -> float | None:
        """Seconds to wait before the child is started again, None when it is not.

        ``started`` is when it began (monotonic clock).
        """
        if self._role is None or not self._worth_it(exit_code):
            return None
        if time.monotonic() - started >= QUIET_S:
            self.count = 0
        if self.count >= self._most:
            return None
        self.count += 1
        return self._first_wait_s * 2 ** (self.count - 1)

    def of(self) -> str:
        return f"{self.count} of {self._most}"

    def _worth_it(self, exit_code: int) -> bool:
        if exit_code == ExitCode.CHIEF_GONE:
            return self._role != CHIEF
        return exit_code > 128 or exit_code == ExitCode.STORAGE_ERROR
