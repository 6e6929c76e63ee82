"""The tenants at a glance: what is told of one, from Airflow's rows and the cluster's as they would be."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trainyard.api import slot_records, tenants
from trainyard.api.slot_records import PoolView, Task
from trainyard.contract import names
from trainyard.kube.tenant_usage import Usage
from trainyard.settings import Settings, load
from trainyard.upkeep.objects import resource_quota

CHECKOUT = Path(__file__).resolve().parents[5]
MNIST, DIGITS = "train_vision_mnist-cnn", "train_vision_digits-mlp"
RUN = names.run_name("mnist-cnn", MNIST, "manual__1")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(CHECKOUT / "config", environ={})


def seen(settings: Settings, slots: int, pods: dict[str, int], **hard: str) -> Usage:
    """A quota that is the file's, with ``slots`` slots of it used (a slot of vision's is 750m)."""
    wanted = resource_quota(settings.tenants["vision"], gpu_resource=settings.cluster.gpu_resource)["spec"]["hard"]
    used = {"limits.cpu": f"{slots * 750}m", "limits.memory": f"{slots * 2}Gi", "pods": str(sum(pods.values()))}
    return Usage(wanted | {name.replace("_", "."): value for name, value in hard.items()}, used, pods)


def told(settings: Settings, *tasks: Task, cluster: Usage | None, **changes: Any) -> dict[str, Any]:
    pool = PoolView(**({"slots": 6, "tasks": tasks, "waiting_for_turn": (), "unfinished_runs": 1, "slot_hours": 1.5} | changes))
    return tenants.describe(settings, settings.tenants["vision"], pool, cluster, None if cluster else "no answer")


def test_a_gang_that_runs_and_what_waits_for_its_slots(settings: Settings) -> None:
    held = Task(DIGITS, "manual__3", "check", "up_for_reschedule", 1)
    tasks = Task(MNIST, "manual__1", "train", "running", 5), Task(DIGITS, "manual__2", "train", "scheduled", 3)
    found = told(settings, *tasks, cluster=seen(settings, 5, {RUN: 5}), waiting_for_turn=(held,))
    assert (found["used"], found["free"], found["slots"]) == (5, 1, 6)
    assert found["gangs"] == [{"run": RUN, "dag_id": MNIST, "slots": 5}]
    assert [(w["step"], w["for"]) for w in found["waiting"]] == [
        ("train", "3 slots, 1 free"),
        ("check", "its turn: a gang of the tenant waits for slots"),
    ]
    assert found["quota_text"] == "pods 5/6, cpu 3.75/4.5, memory 10.00Gi/12.00Gi"
    assert found["disagreements"] == []


def test_a_gang_without_a_pod_waits_for_the_quota(settings: Settings) -> None:
    found = told(settings, Task(MNIST, "manual__1", "train", "running", 5), cluster=seen(settings, 3, {"digits-mlp-0123456789": 3}))
    assert found["waiting"] == [{"run": RUN, "step": "train", "slots": 5, "for": "room in the quota for all its pods"}]


@pytest.mark.parametrize(
    ("pool", "cluster", "says"),
    [
        ({"slots": 4}, {}, "Airflow's pool has 4 slots, the file says 6: `trainyard sync`"),
        ({"slots": None}, {}, "Airflow has no pool tenant-vision"),
        ({}, {"limits_cpu": "3"}, "the cluster's quota is not the file's: limits.cpu 3 (file: 4500m)"),
    ],
)
def test_a_number_that_is_not_the_files_is_told(settings: Settings, pool: dict[str, Any], cluster: dict[str, str], says: str) -> None:
    (text,) = told(settings, cluster=seen(settings, 0, {}, **cluster), **pool)["disagreements"]
    assert says in text


def test_pods_that_airflow_knows_nothing_of_are_told(settings: Settings) -> None:
    (text,) = told(settings, cluster=seen(settings, 5, {RUN: 5}))["disagreements"]
    assert text.startswith("the cluster holds 5 slots of pods, Airflow knows of 0")


def test_a_cluster_that_does_not_answer_is_a_line_and_no_failure(settings: Settings) -> None:
    found = told(settings, cluster=None)
    assert (found["quota"], found["quota_text"], found["gpus_used"]) == (None, None, None)
    assert found["disagreements"] == ["the cluster was not asked: no answer"]


def test_slots_lowered_below_what_runs(settings: Settings) -> None:
    """Nothing is killed: it is over its number for a while, and nothing is free."""
    found = told(settings, Task(MNIST, "manual__1", "train", "running", 8), cluster=seen(settings, 8, {RUN: 8}))
    assert (found["used"], found["free"], found["disagreements"]) == (8, 0, [])


def test_a_tenant_that_drains_is_drained_when_nothing_runs(settings: Settings) -> None:
    tenant = settings.tenants["vision"].model_copy(update={"state": "draining"})
    for runs, state, slots in ((1, "draining", 6), (0, "drained", 0)):
        pool = PoolView(slots, (), (), runs, 0.0)
        cluster = seen(settings, 0, {})
        if not runs:
            closed = resource_quota(tenant, gpu_resource=settings.cluster.gpu_resource, closed=True)["spec"]["hard"]
            cluster = Usage(closed, {}, {})
        found = tenants.describe(settings, tenant, pool, cluster)
        assert (found["state"], found["slots"], found["disagreements"]) == (state, slots, [])


def test_a_month_is_utcs() -> None:
    first, last = slot_records.month_of(datetime(2026, 2, 14, tzinfo=UTC))
    assert (first, last) == (datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))


def test_only_what_lies_in_the_month_counts() -> None:
    first, last = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    hours = slot_records.overlap_hours
    assert hours(datetime(2026, 2, 28, 22, tzinfo=UTC), datetime(2026, 3, 1, 1, tzinfo=UTC), first, last) == 1
    assert hours(datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 2, 6, tzinfo=UTC), first, last) == 6
    assert hours(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), first, last) == 0
