"""Faults while a gang trains: what is the cluster's doing is repaired, what is the replica's own ends the gang with its reason."""

from __future__ import annotations

import pytest

from tests.cluster.gang_support import SLOT, GangTenant, Running, behave, wait_for
from trainyard.errors import GangError

pytestmark = pytest.mark.slow


def test_a_deleted_worker_is_replaced_and_the_gang_goes_on(tenant: GangTenant) -> None:
    """kubeflow/trainer#1560: a deleted pod is the cluster's doing, and no failure of the run."""
    spec = tenant.spec()
    gang, log = tenant.gang(spec, behave(chief={"seconds": 25}))
    running = Running(gang)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    # A container runs before its program has said anything.
    wait_for(lambda: log.count("[worker-1] worker-1 of generation 1") == 1, "the worker's log is followed")
    worker = next(pod for pod in tenant.pods(spec.run) if pod.replica == "worker-1")
    tenant.core.delete_namespaced_pod(worker.name, tenant.namespace)
    wait_for(lambda: log.has("worker-1 was replaced"), "the worker is replaced")
    wait_for(lambda: log.count("[worker-1] worker-1 of generation 1") == 2, "the new worker's log is followed")
    assert running.result().generation == 1


def test_memory_kills_are_bounded_and_named(tenant: GangTenant) -> None:
    """kubeflow/common#167: OOM (137) was retryable without limit."""
    spec = tenant.spec()
    gang, log = tenant.gang(spec, behave(worker={"eat": 40, "only": 1}))
    limit = SLOT["memory"]
    with pytest.raises(GangError, match=rf"OOM in worker-1: it used more than its limit of {limit}, 2 times") as caught:
        gang.run()
    assert (caught.value.reason, caught.value.final) == ("OutOfMemory", True)
    assert log.count("OOM in worker-1") >= 2
    assert tenant.pods(spec.run) == []


def test_a_lost_chief_ends_the_generation_and_the_next_try_goes_on(tenant: GangTenant) -> None:
    spec = tenant.spec()
    gang, log = tenant.gang(spec, behave(chief={"seconds": 60}))
    running = Running(gang)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    chief = next(pod for pod in tenant.pods(spec.run) if pod.role == "chief")
    tenant.core.delete_namespaced_pod(chief.name, tenant.namespace, grace_period_seconds=0)
    with pytest.raises(GangError) as caught:
        running.result()
    assert (caught.value.reason, caught.value.final) == ("Lost", False)
    assert tenant.pods(spec.run) == []
    again, _ = tenant.gang(spec, behave(chief={"seconds": 1}))
    assert again.run().generation == 2


@pytest.mark.long
def test_the_deadline_is_the_pods_own(tenant: GangTenant) -> None:
    """apache/airflow#67227: it holds whether or not anybody watches."""
    spec = tenant.spec(training__deadline_s=30, training__start_deadline_s=20)
    gang, log = tenant.gang(spec, behave())
    running = Running(gang)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    running.leave()
    wait_for(lambda: not any(pod.role == "chief" and not pod.over for pod in tenant.pods(spec.run)), "the chief is over", 60)
    again, _ = tenant.gang(spec, behave())
    with pytest.raises(GangError, match=r"not done 30 s after its start \(training.deadline_s\)") as caught:
        again.run()
    assert (caught.value.reason, caught.value.final) == ("Deadline", True)
    assert tenant.pods(spec.run) == []
