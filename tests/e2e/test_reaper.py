"""The reaper as Airflow runs it: it asks Airflow itself, in a task, about a run that trains and one that never was."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from kubernetes import client

from tests.fixtures.platform import Platform, until
from trainyard.contract import names
from trainyard.upkeep.reaping.judging import GRACE

DAG = "reap_stray_jobs"
NAMESPACE = names.namespace("vision")


def stray(platform: Platform, name: str) -> client.BatchV1Api:
    """A Job as a run's would be, of a run that Airflow never had: nothing of it takes a slot, since it is suspended."""
    batch = client.BatchV1Api(platform.core().api_client)
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_INSTANCE: "trainyard",
        names.LABEL_TENANT: "vision",
        names.LABEL_RUN: f"{name}-0123456789",
    }
    notes = {names.ANNOTATION_DAG_ID: "train_vision_digits-mlp", names.ANNOTATION_RUN_ID: f"manual__{name}"}
    template = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none:1"}]}}
    body = {"metadata": {"name": name, "labels": labels, "annotations": notes}, "spec": {"suspend": True, "template": template}}
    batch.create_namespaced_job(NAMESPACE, body)
    return batch


def there(batch: client.BatchV1Api, name: str) -> bool:
    return any(job.metadata.name == name for job in batch.list_namespaced_job(NAMESPACE).items)


def dry_round(platform: Platform) -> str:
    """One round that only says what it would do: its task's log."""
    run_id = f"manual__{secrets.token_hex(8)}"
    body = {"dag_run_id": run_id, "logical_date": None, "conf": {"dry_run": True}}
    # Airflow on SQLite refuses a write now and then.
    until(lambda: platform.api("POST", f"/dags/{DAG}/dagRuns", json=body).status_code in (200, 409), 60, "a round is begun", every_s=2)
    path = f"/dags/{DAG}/dagRuns/{run_id}"
    last: dict[str, Any] = {}

    def ended() -> bool:
        last.update(platform.api("GET", path).json())
        return last["state"] in ("success", "failed")

    until(ended, 200, lambda: f"the round has ended: {last.get('state')}", every_s=1)
    text = platform.api("GET", f"{path}/taskInstances/reap/logs/1", params={"full_content": True}).text
    assert last["state"] == "success", text[-3000:]
    return text


def test_a_live_run_is_seen_as_such_and_what_is_young_is_left(platform: Platform) -> None:
    batch = stray(platform, "young")
    try:
        run = platform.begin("digits-long", "--set", "steps=60000")["run"]
        platform.wait_for_training(run, step=1)
        said = dry_round(platform)
        assert "1 runs live, 0 strays (0 of them in this round), 1 within the grace time" in said
        assert "would remove 0 runs' objects; left 0; saved 0 logs, would end 0 incomplete uploads" in said, "the pod's own words"
        assert there(batch, "young")
        before = platform.wait_for_training(run)
        platform.wait_for_training(run, step=before + 1)
    finally:
        batch.delete_namespaced_job("young", NAMESPACE, propagation_policy="Background")
    assert platform.trainyard("cancel", run).code == 0
    platform.no_pods()


@pytest.mark.long
def test_a_stray_goes_by_the_schedule_within_the_bound_that_is_stated(platform: Platform) -> None:
    batch = stray(platform, "forgotten")
    bound = 2 * GRACE.total_seconds() + 120  # the grace time, the schedule, and a pod on a busy machine
    until(lambda: not there(batch, "forgotten"), bound, "the stray is gone", every_s=2)
