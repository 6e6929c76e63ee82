"""The asynchronous loop: how many steps, when saved, what a bad loss does. A worker pool of plain Python stands for the coordinator."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainer.engine.loop import CLOSURE_S, MAX_STEPS, QUEUED_PER_WORKER, Pace, run
from trainer.engine.progress import Meter, Progress
from trainer.errors import DivergedError


class Cluster:
    """Counts what is scheduled and what is in flight."""

    def __init__(self, loss: Any = 1.0) -> None:
        self.scheduled: list[int] = []
        self.waiting = 0
        self.most_waiting = 0
        self.saved: list[int] = []
        self.reports: list[Progress] = []
        self._loss = loss

    def schedule(self, steps: int) -> int:
        self.scheduled.append(steps)
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        return len(self.scheduled)

    def fetch(self, number: int) -> float | None:
        self.waiting -= 1
        loss = self._loss(number) if callable(self._loss) else self._loss
        return None if loss is None else float(loss)

    def save(self, step: int) -> None:
        assert self.waiting == 0, "a checkpoint is only of steps that are done"
        self.saved.append(step)

    def run(self, total: int, save_every: int, start: int = 0, workers: int = 2) -> Meter:
        meter = Meter(total, 1000, 10, start)
        run(self.schedule, self.fetch, workers, total, save_every, meter, self.reports.append, self.save)
        return meter


@pytest.mark.parametrize(("total", "save_every", "start"), [(1, 100, 0), (250, 100, 0), (250, 100, 200), (300, 100, 0), (7, 3, 5)])
def test_exactly_the_steps_that_are_left_are_scheduled_and_the_last_is_saved(total: int, save_every: int, start: int) -> None:
    cluster = Cluster()
    meter = cluster.run(total, save_every, start)
    assert sum(cluster.scheduled) == total - start
    assert meter.step == total
    assert cluster.saved == [*range(start + save_every, total, save_every), total]
    assert cluster.reports[-1].step == total


def test_nothing_is_done_when_the_restored_step_is_the_last() -> None:
    cluster = Cluster()
    cluster.run(100, 10, start=100)
    assert (cluster.scheduled, cluster.saved, cluster.reports) == ([], [], [])


def test_the_first_closure_is_awaited_alone_and_the_queue_is_bounded() -> None:
    waiting_at_schedule = []
    cluster = Cluster()
    original = cluster.schedule

    def schedule(steps: int) -> int:
        waiting_at_schedule.append(cluster.waiting)
        return original(steps)

    cluster.schedule = schedule  # type: ignore[method-assign]
    cluster.run(500, 500, workers=3)
    assert waiting_at_schedule[:2] == [0, 0]
    assert cluster.most_waiting == 3 * QUEUED_PER_WORKER


@pytest.mark.parametrize(("lost", "loss"), [({3, 30}, 1.0), (set(range(1001)), None)])
def test_steps_whose_loss_went_with_their_worker_count(lost: set[int], loss: float | None) -> None:
    cluster = Cluster(lambda number: None if number in lost else 1.0)
    meter = cluster.run(1000, 500)
    assert meter.step == 1000
    assert sum(cluster.scheduled) == 1000
    assert cluster.saved == [500, 1000]
    assert meter.mean_loss == loss
    assert cluster.reports[-1].loss == loss
    assert f" loss {'?' if loss is None else '1.0000'} " in cluster.reports[-1].line()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_training_and_is_never_saved(bad: float) -> None:
    cluster = Cluster(lambda number: bad if number == 30 else 1.0)
    with pytest.raises(DivergedError, match=r"the loss is (nan|inf) within steps 30–30 of 1000.*learning_rate"):
        cluster.run(1000, 20)
    assert cluster.saved == [20]


def test_the_mean_loss_is_weighted_by_steps() -> None:
    now = [0.0]
    meter = Meter(10, 100, 10, 0, clock=lambda: now[0])
    meter.add(3, 1.0)
    meter.add(1, 5.0)
    now[0] = 4.0
    assert meter.due()
    progress = meter.report()
    assert (progress.loss, progress.examples_per_second, progress.epoch) == (2.0, 10.0, 0.4)


class TestPace:
    def test_one_step_a_closure_until_a_window_is_measured(self) -> None:
        now = [0.0]
        pace = Pace(2, clock=lambda: now[0])
        pace.observe(5)
        now[0] = Pace.WINDOW_S * 0.9
        pace.observe(5)
        assert pace.steps(1000) == 1

    def test_closures_take_about_as_long_as_wanted(self) -> None:
        now = [0.0]
        pace = Pace(2, clock=lambda: now[0])
        now[0] = 1.0
        pace.observe(100)  # 2 workers, 100 steps a second: 20 ms a step on one of them
        assert pace.step_s == pytest.approx(0.02)
        assert pace.steps(10_000) == int(CLOSURE_S / 0.02)

    def test_fast_steps_are_capped_and_the_end_is_shared(self) -> None:
        now = [0.0]
        pace = Pace(2, clock=lambda: now[0])
        now[0] = 1.0
        pace.observe(1_000_000)
        assert pace.steps(100_000) == MAX_STEPS
        assert pace.steps(16) == 2
        assert pace.steps(1) == 1

    def test_time_without_training_is_not_counted(self) -> None:
        now = [0.0]
        pace = Pace(1, clock=lambda: now[0])
        now[0] = 100.0
        pace.restart()
        now[0] = 101.0
        pace.observe(50)
        assert pace.step_s == pytest.approx(0.02)
