"""The asynchronous loop: keeps every worker busy with closures of a few steps, counts what came back, saves and reports.

It counts logical steps: a closure whose worker died is run again elsewhere, and counts once, though a part of it may have been applied
twice. Before each checkpoint all closures are awaited, so what is saved is exactly the steps it is named after.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from trainer.engine.progress import Meter, Progress
from trainer.errors import DivergedError

CLOSURE_S = 0.15
"""What one closure should take: long beside the 2–5 ms that scheduling costs, short beside what a person notices."""
MAX_STEPS = 50
QUEUED_PER_WORKER = 4


class Pace:
    """How many steps one closure takes, from how long they took.

    Results come in bursts, so a gap between two says little: time is taken over windows of ``WINDOW_S``.
    """

    WINDOW_S = 0.5

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers, self._clock = workers, clock
        self._since, self._steps = clock(), 0
        self.step_s: float | None = None
        """Seconds of one step on one worker; None before the first window."""

    def observe(self, steps: int) -> None:
        """``steps`` more came back."""
        self._steps += steps
        now = self._clock()
        if now - self._since >= self.WINDOW_S:
            self.step_s = (now - self._since) * self._workers / self._steps
            self._since, self._steps = now, 0

    def restart(self) -> None:
        """What passed since the last window was no training: tracing, a checkpoint."""
        self._since, self._steps = self._clock(), 0

    def steps(self, left: int) -> int:
        """Steps of the next closure when ``left`` may still be scheduled; shrinks at the end so that all workers end together."""
        if self.step_s is None:
            return 1
        fair = math.ceil(left / (self._workers * QUEUED_PER_WORKER))
        return max(1, min(MAX_STEPS, int(CLOSURE_S / self.step_s), fair, left))


def run(
    schedule: Callable[[int], Any],
    fetch: Callable[[Any], float | None],
    workers: int,
    total: int,
    save_every: int,
    meter: Meter,
    report: Callable[[Progress], None],
    save: Callable[[int], None],
) -> None:
    """Trains from ``meter.step`` to ``total``.

    ``schedule(n)`` asks for a closure of n steps and ``fetch`` waits for its mean loss (None: done, its loss is lost). ``save(step)`` is
    called every ``save_every`` steps and at the end, when all scheduled steps are done and none runs.

    Raises:
        DivergedError: a loss is not finite.
        Whatever ``fetch``, ``report`` and ``save`` raise.
    """
    pace = Pace(workers)
    flight: deque[tuple[int, Any]] = deque()
    scheduled = saved = meter.step
    proved = False  # the first closure is awaited alone: it traces, and shows the user's errors

    def await_oldest() -> None:
        steps, result = flight.popleft()
        loss = fetch(result)
        if loss is not None and not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} within steps {meter.step + 1}–{meter.step + steps} of {total}: lower `training.learning_rate`, "
                "or look in the model and the data for a division by 0 or a logarithm of 0"
            )
        pace.observe(steps)
        meter.add(steps, loss)
        if meter.due():
            report(meter.report())

    while meter.step < total:
        stop = min(total, saved + save_every)
        while scheduled < stop:
            while len(flight) >= workers * QUEUED_PER_WORKER:
                await_oldest()
            steps = pace.steps(stop - scheduled)
            flight.append((steps, schedule(steps)))
            scheduled += steps
            if not proved:
                await_oldest()
                pace.restart()
                proved = True
        while flight:
            await_oldest()
        save(meter.step)
        saved = meter.step
        pace.restart()
    if meter.pending:
        report(meter.report())
