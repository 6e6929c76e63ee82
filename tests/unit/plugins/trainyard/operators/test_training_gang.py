"""The gang's operator: Airflow's errors for ours, and a killed task that is never green."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard.errors import ConfigError, GangError, NotFoundError, TrainyardError, UnavailableError
from trainyard.operators.gang_cluster import GangLeft
from trainyard.operators.gang_run import GangOutcome
from trainyard.operators.training_gang import TrainingGang

SHAPE = {"workers": 2, "parameter_servers": 2, "chief_slots": 1, "ps_slots": 1, "worker_slots": 1}
CONTEXT: Any = {"dag_run": SimpleNamespace(dag_id="train_vision_p", run_id="manual__1")}


class FakeRun:
    def __init__(self, error: Exception | None = None) -> None:
        self.stop = False
        self._error = error

    def run(self) -> GangOutcome:
        if self._error is not None:
            raise self._error
        return GangOutcome(3, 70, 0.5)


def execute(monkeypatch: pytest.MonkeyPatch, run: FakeRun) -> Any:
    task = TrainingGang(task_id="train", tenant="vision", pipeline="p", gang_shape=SHAPE)
    monkeypatch.setattr(task, "_open", lambda name: run)
    return task.execute(CONTEXT)


def test_xcom_carries_ids_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = execute(monkeypatch, FakeRun())
    assert found["run"].startswith("p-")
    assert (found["generation"], found["checkpoint_step"]) == (3, 70)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (GangError("UserError", "x", final=True), True),
        (GangError("Lost", "x", final=False), False),
        (GangLeft("told to stop"), False),
        (NotFoundError("no spec"), True),
        (ConfigError("bad"), True),
    ],
)
def test_errors(monkeypatch: pytest.MonkeyPatch, error: Exception, final: bool) -> None:
    with pytest.raises(AirflowException) as caught:
        execute(monkeypatch, FakeRun(error))
    assert isinstance(caught.value, AirflowFailException) is final


def test_what_may_work_later_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainyardError):
        execute(monkeypatch, FakeRun(UnavailableError("S3")))


def test_on_kill_only_sets_a_mark() -> None:
    """It runs in a signal handler, where nothing can be asked, and before anything was opened."""
    task = TrainingGang(task_id="train", tenant="vision", pipeline="p", gang_shape=SHAPE)
    task.on_kill()
    run = FakeRun()
    task._run = run  # type: ignore[assignment]
    task.on_kill()
    assert run.stop is True
