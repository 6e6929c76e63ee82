"""Pool slots by the form, whatever Airflow has at hand when it asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.pipelines.policy import task_instance_mutation_hook

SHAPE = {"workers": 2, "parameter_servers": 2, "chief_slots": 1, "ps_slots": 1, "worker_slots": 1}


class Instance:
    """A task instance; its run must not be loaded by asking for it."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self.pool_slots = 5

    @property
    def dag_run(self) -> Any:
        raise AssertionError("a query inside the scheduler's transaction")


def slots(task: Any, run: Any, *, loaded: Any = None) -> int:
    instance = Instance(task)
    if loaded is not None:
        instance.__dict__["dag_run"] = loaded
    task_instance_mutation_hook(instance, dag_run=run)  # type: ignore[arg-type]
    return instance.pool_slots


GANG = SimpleNamespace(gang_shape=SHAPE)


@pytest.mark.parametrize(
    ("task", "conf", "wanted"),
    [
        (GANG, {}, 5),
        (GANG, None, 5),
        (GANG, {"workers": 1, "parameter_servers": 1}, 3),
        (SimpleNamespace(), {"workers": 1}, 5),
        (None, {"workers": 1}, 5),
    ],
)
def test_slots(task: Any, conf: Any, wanted: int) -> None:
    assert slots(task, SimpleNamespace(conf=conf)) == wanted


def test_without_a_run_at_hand() -> None:
    assert slots(GANG, None) == 5
    assert slots(GANG, None, loaded=SimpleNamespace(conf={"workers": 1})) == 4
