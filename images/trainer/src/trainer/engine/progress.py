"""What a person sees of training: one plain line about every two seconds, and the same numbers in ``progress.json``.

The line's form is read by others (the command's live view): ``step 120/250 epoch 1.9 loss 0.2134 850 examples/s``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

EVERY_S = 2.0


@dataclass(frozen=True)
class Progress:
    """Where training is."""

    step: int
    total_steps: int
    epoch: float
    """Passes over the training examples so far."""
    loss: float | None
    """Mean over the steps since the last report, or of that report when no loss came since; None when none ever came."""
    examples_per_second: float

    def line(self) -> str:
        loss = "?" if self.loss is None else f"{self.loss:.4f}"
        return f"step {self.step}/{self.total_steps} epoch {self.epoch:.1f} loss {loss} {self.examples_per_second:.0f} examples/s"

    def document(self) -> dict[str, Any]:
        """``progress.json``, by the contract."""
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "epoch": round(self.epoch, 3),
            "loss": self.loss,
            "examples_per_second": round(self.examples_per_second, 1),
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }


class Meter:
    """Counts steps and losses, and says when a report is due."""

    def __init__(self, total_steps: int, examples: int, batch_size: int, step: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.step = step
        self._total, self._examples, self._batch, self._clock = total_steps, examples, batch_size, clock
        self._since, self._steps = clock(), 0
        self._loss, self._known = 0.0, 0
        self._last: float | None = None

    def add(self, steps: int, mean_loss: float | None) -> None:
        """``steps`` more are done, with this mean loss; None if it is not known."""
        self.step += steps
        self._steps += steps
        if mean_loss is not None:
            self._loss += mean_loss * steps
            self._known += steps

    def due(self) -> bool:
        return self._steps > 0 and self._clock() - self._since >= EVERY_S

    def report(self) -> Progress:
        """The numbers since the last report; starts a new window. To be called after at least one ``add``."""
        now = self._clock()
        loss = self._last = self.mean_loss
        rate = self._steps * self._batch / max(1e-9, now - self._since)
        self._since, self._steps = now, 0
        self._loss, self._known = 0.0, 0
        return Progress(self.step, self._total, self.step * self._batch / self._examples, loss, rate)

    @property
    def mean_loss(self) -> float | None:
        """Mean loss since the last report, or of that report when none came since; None when none ever came."""
        return self._loss / self._known if self._known else self._last

    @property
    def pending(self) -> bool:
        """Whether steps were counted since the last report."""
        return self._steps > 0


class Publisher:
    """Writes the newest ``progress.json`` from a thread of its own: an S3 that is slow or away must not stop training."""

    def __init__(self, write: Callable[[dict[str, Any]], None], say: Callable[[str], None]) -> None:
        self._write, self._say = write, say
        self._newest: Progress | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._failed = False
        self.stop_reason: Exception | None = None
        """What ``write`` raised that means training must end (set by the caller's ``write`` through ``Stop``)."""
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)
        self._thread.start()

    def put(self, progress: Progress) -> None:
        with self._changed:
            self._newest = progress
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> None:
        """Writes what is left, within ``timeout`` seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._newest is None and not self._closed:
                    self._changed.wait()
                newest, self._newest = self._newest, None
            if newest is None:
                return
            try:
                self._write(newest.document())
                self._failed = False
            except Stop as stop:
                self.stop_reason = stop.reason
                return
            except Exception as error:  # progress is a courtesy: said once, training goes on
                if not self._failed:
                    self._say(f"progress could not be written, training goes on: {error}")
                self._failed = True


class Stop(Exception):
    """Raised by a ``write`` to end training with ``reason``."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason
