"""What is read from the cluster: replicas, failures, and why somebody is missing."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import gang_state
from trainyard.kube.gang_state import PodView

SPEC = RunSpec.model_validate(run_spec_document(gang__workers=2))


def pod(role: str = "worker", index: int = 1, phase: str = "Running", **status: Any) -> k8s.V1Pod:
    labels = {names.LABEL_ROLE: role, gang_state.INDEX_KEY: str(index)}
    deleting = status.pop("deleting", None)
    container = k8s.V1Container(name="main", resources=k8s.V1ResourceRequirements(limits={"memory": "2Gi"}))
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name=f"x-{role}-{index}-abc", uid=f"{role}{index}", labels=labels, deletion_timestamp=deleting),
        spec=k8s.V1PodSpec(containers=[container], node_name=status.pop("node", None)),
        status=k8s.V1PodStatus(phase=phase, **status),
    )


def ended(code: int, reason: str = "Error", message: str | None = None) -> dict[str, Any]:
    state = k8s.V1ContainerState(terminated=k8s.V1ContainerStateTerminated(exit_code=code, reason=reason, message=message))
    status = k8s.V1ContainerStatus(name="main", image="i", image_id="", ready=False, restart_count=0, state=state)
    return {"phase": "Failed", "container_statuses": [status]}


def seen(thing: k8s.V1Pod) -> PodView:
    found = gang_state.view(thing)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ended(40, message="a\nValueError: no\n"), "worker-1: exit code 40 (UserError): ValueError: no"),
        (ended(7), "worker-1: exit code 7 (Exit7)"),
        (ended(137, "OOMKilled"), "OOM in worker-1: it used more than its limit of 2Gi"),
        (ended(137), "worker-1: exit code 137 (Killed)"),
    ],
)
def test_a_failure_in_one_line(status: dict[str, Any], words: str) -> None:
    assert seen(pod(**status)).failure == words


def test_a_pod_of_something_else_is_no_replica() -> None:
    other = pod()
    other.metadata.labels = {"app": "x"}
    assert gang_state.view(other) is None


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = k8s.V1ContainerState(waiting=k8s.V1ContainerStateWaiting(reason=reason, message=message))
    return {
        "phase": "Pending",
        "node": "n",
        "container_statuses": [k8s.V1ContainerStatus(name="main", image="i", image_id="", ready=False, restart_count=0, state=state)],
    }


def test_missing_replicas_by_name_and_in_the_words_of_who_refuses_them() -> None:
    unplaced = k8s.V1PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes: Insufficient cpu.")
    pods = [
        seen(pod("chief", 0)),
        seen(pod("worker", 0, "Pending", conditions=[unplaced])),
        seen(pod("worker", 1, **waiting("ImagePullBackOff", "Back-off pulling"))),
    ]
    absent = gang_state.missing(SPEC, pods)
    assert list(absent) == ["ps-0", "worker-0", "worker-1"]
    failures = {names.job_name(SPEC.run, 3, "ps"): "exceeded quota: tenant"}
    assert gang_state.explain_missing(SPEC, 3, absent, failures) == (
        "ps-0: no pod: exceeded quota: tenant; "
        "worker-0 (pod x-worker-0-abc): Unschedulable: 0/3 nodes: Insufficient cpu.; "
        "worker-1 (pod x-worker-1-abc): ImagePullBackOff: Back-off pulling"
    )


def test_a_pod_that_is_being_deleted_is_missing_and_its_replacement_is_not() -> None:
    old = seen(pod("worker", 0, deleting=datetime.datetime.now(datetime.UTC)))
    others = [seen(pod("chief", 0)), seen(pod("ps", 0)), seen(pod("worker", 1))]
    assert list(gang_state.missing(SPEC, [*others, old])) == ["worker-0"]
    assert gang_state.missing(SPEC, [*others, old, seen(pod("worker", 0))]) == {}


def test_a_jobs_fate_is_known_before_its_pods_have_ended() -> None:
    condition = k8s.V1JobCondition(type="FailureTarget", status="True", reason="MaxFailedIndexesExceeded", message="m")
    labels = {names.LABEL_ROLE: "ps", names.LABEL_GENERATION: "2"}
    job = k8s.V1Job(metadata=k8s.V1ObjectMeta(name="j", labels=labels), status=k8s.V1JobStatus(conditions=[condition]))
    found = gang_state.job_view(job)
    assert found is not None
    assert (found.failed, found.over, found.generation) == ("MaxFailedIndexesExceeded: m", True, 2)
