"""A gang starts as a whole or not at all: quota, scheduler and limits, in their own words."""

from __future__ import annotations

import threading
import time

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import SLOT, GangTenant, Log, Running, behave, wait_for
from trainyard.contract import keys, names
from trainyard.errors import GangError
from trainyard.operators.gang_cluster import Timing


@pytest.fixture(autouse=True)
def _no_quota(tenant: GangTenant):  # type: ignore[no-untyped-def]
    yield
    for quota in tenant.core.list_namespaced_resource_quota(tenant.namespace).items:
        tenant.core.delete_namespaced_resource_quota(quota.metadata.name, tenant.namespace)


class Sampler(threading.Thread):
    """Counts the living pods of two runs, again and again."""

    def __init__(self, tenant: GangTenant, runs: list[str]) -> None:
        super().__init__(daemon=True)
        self._tenant, self._runs = tenant, runs
        self.seen: set[tuple[int, ...]] = set()
        self.stop = False
        self.start()

    def run(self) -> None:
        while not self.stop:
            self.seen.add(tuple(sum(not pod.over for pod in self._tenant.pods(run)) for run in self._runs))
            time.sleep(0.05)


def test_two_gangs_and_room_for_one_and_a_half(tenant: GangTenant) -> None:
    """volcano#1387: each got half its pods, and both waited for ever."""
    tenant.quota(limits_cpu="750m", requests_cpu="750m", pods="7")
    specs = [tenant.spec(), tenant.spec()]
    sampler = Sampler(tenant, [spec.run for spec in specs])
    running = [Running(tenant.gang(spec, behave(chief={"seconds": 2}))[0]) for spec in specs]
    for one in running:
        one.result()
    sampler.stop = True
    sampler.join()
    both = {counts for counts in sampler.seen if all(counts)}
    assert not both, f"pods of both gangs lived at the same time: {both}"


def test_nothing_is_created_until_the_whole_gang_has_room(tenant: GangTenant) -> None:
    tenant.quota(pods="6")
    container = {"name": "main", "image": tenant.profile.images.trainer, "command": ["sh", "-c", "exec sleep 600"]}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod_security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container | {"securityContext": security}], "securityContext": pod_security, "restartPolicy": "Never"}
    for name in ("blocker-0", "blocker-1"):
        spec["terminationGracePeriodSeconds"] = 0
        tenant.core.create_namespaced_pod(tenant.namespace, {"metadata": {"name": name}, "spec": spec})
    run = tenant.spec()
    gang, log = tenant.gang(run, behave(chief={"seconds": 1}))
    running = Running(gang)
    wait_for(lambda: log.has("waiting, nothing is created yet"), "the gang says what it waits for")
    assert log.has("pods 5 needed, 2 of 6 used")
    assert tenant.pods(run.run) == []
    assert tenant.store.get_json(keys.generation(run.run)) is None
    for name in ("blocker-0", "blocker-1"):
        tenant.core.delete_namespaced_pod(name, tenant.namespace, grace_period_seconds=0)
    assert running.result().generation == 1


def test_a_gang_larger_than_the_quota_is_refused_at_once(tenant: GangTenant) -> None:
    tenant.quota(pods="4")
    run = tenant.spec()
    gang, _ = tenant.gang(run, behave())
    with pytest.raises(GangError, match=r"does not fit into the empty namespace.*pods 5 needed.*of 4") as caught:
        gang.run()
    assert caught.value.final


def test_waiting_for_room_is_bounded(tenant: GangTenant) -> None:
    tenant.quota(pods="5")
    first = tenant.spec()
    running = Running(tenant.gang(first, behave(chief={"seconds": 6}))[0])
    wait_for(lambda: len(tenant.pods(first.run)) == 5, "the first gang is there")
    gang, _ = tenant.gang(tenant.spec(), behave(), timing=Timing(room=1.5))
    with pytest.raises(GangError, match=r"no room for the whole gang") as caught:
        gang.run()
    assert (caught.value.reason, caught.value.final) == ("NoRoom", False)
    running.result()


def test_a_replica_that_cannot_be_placed_is_named_with_the_schedulers_words(tenant: GangTenant) -> None:
    """kubeflow/trainer#1282: 99 of 100 workers run for ever, and nobody says which is missing."""
    spec = tenant.spec(training__start_deadline_s=10, slot={**SLOT, "cpu": "50"}, gang__workers=1, gang__parameter_servers=1)
    gang, log = tenant.gang(spec, behave())
    with pytest.raises(GangError, match=r"worker-0 \(pod .*\): .*Insufficient cpu") as caught:
        gang.run()
    assert (caught.value.reason, caught.value.final) == ("StartDeadline", False)
    assert tenant.pods(spec.run) == []
    assert log.has("waiting for")


def test_pods_refused_by_admission_are_told_by_the_jobs_events(tenant: GangTenant) -> None:
    """A Job's creator never sees why its pods are refused."""
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "64Mi"}}]}}
    tenant.core.create_namespaced_limit_range(tenant.namespace, body)
    try:
        spec = tenant.spec(training__start_deadline_s=10)
        gang, _ = tenant.gang(spec, behave())
        with pytest.raises(GangError, match=r"chief-0: no pod: .*maximum memory usage per Container is 64Mi"):
            gang.run()
    finally:
        tenant.core.delete_namespaced_limit_range("limits", tenant.namespace)
    assert tenant.batch.list_namespaced_job(tenant.namespace).items == []


def test_a_killed_task_leaves_a_gang_that_is_starting(tenant: GangTenant) -> None:
    spec = tenant.spec(slot={**SLOT, "cpu": "50"}, gang__workers=1, gang__parameter_servers=1)
    gang, _ = tenant.gang(spec, behave())
    running = Running(gang)
    wait_for(lambda: len(tenant.pods(spec.run)) == 3, "the pods exist")
    running.leave()
    assert len(tenant.pods(spec.run)) == 3
    k8s.BatchV1Api(tenant.api).delete_namespaced_job(
        names.job_name(spec.run, 1, "chief"), tenant.namespace, propagation_policy="Background"
    )


def test_the_log_says_when_the_gang_is_whole(tenant: GangTenant) -> None:
    log = Log()
    tenant.gang(tenant.spec(), behave(chief={"seconds": 0.5}), log)[0].run()
    assert log.has("generation 1: all 5 replicas run")
