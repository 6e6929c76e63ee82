"""A gang from nothing to a result: whole or not at all, live logs, and nothing left."""

from __future__ import annotations

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import GangTenant, Log, Running, behave, wait_for
from trainyard.contract import keys, names
from trainyard.errors import GangError
from trainyard.kube import labels
from trainyard.operators.gang_cluster import GangLeft


def test_good_end_leaves_nothing_and_is_not_done_twice(tenant: GangTenant) -> None:
    spec = tenant.spec()
    gang, log = tenant.gang(spec, behave(chief={"seconds": 1.5, "say": ["epoch 1"]}, worker={"say": ["hello"]}))
    outcome = gang.run()
    assert (outcome.checkpoint_step, outcome.loss, outcome.generation) == (70, 0.5, 1)
    assert tenant.pods(spec.run) == []
    assert tenant.batch.list_namespaced_job(tenant.namespace, label_selector=labels.run_selector(spec.run)).items == []
    # Every replica's lines, each once, under its own name.
    assert log.count("[chief-0] epoch 1") == 1
    for replica in ("worker-0", "worker-1"):
        assert log.count(f"[{replica}] hello") == 1
    for replica in ("ps-0", "ps-1", "worker-0", "worker-1"):
        assert log.count(f"[{replica}] {replica} saw the end") == 1
    marker = tenant.store.get_json(keys.step_marker(spec.run, "train"))
    assert marker is not None
    assert marker["values"] == {"checkpoint_step": 70, "loss": 0.5, "generation": 1}
    again, log = tenant.gang(spec, behave(chief={"seconds": 0, "exit": 1}))
    assert again.run() == outcome
    assert log.has("nothing to do")
    assert tenant.store.get_json(keys.generation(spec.run))["generation"] == 1  # type: ignore[index]


def test_addresses_are_a_block_of_ports_that_nobody_else_has(tenant: GangTenant) -> None:
    first, second = tenant.spec(), tenant.spec()
    if tenant.profile.addressing != "host":
        pytest.skip("this cluster's pods have addresses of their own")
    one, log_one = tenant.gang(first, behave(chief={"seconds": 4}))
    two, log_two = tenant.gang(second, behave(chief={"seconds": 4}))
    running = [Running(one), Running(two)]
    for run in running:
        run.result()

    def ports(log: Log) -> set[str]:
        return {line.rsplit(":", 1)[1] for line in log.lines if " at 127.0.0.1:" in line}

    assert len(ports(log_one)) == len(ports(log_two)) == 5
    assert not ports(log_one) & ports(log_two)


def test_a_ps_that_never_ends_is_ended(tenant: GangTenant) -> None:
    """kubeflow/trainer#774: ps-0 still Running four days later."""
    spec = tenant.spec()
    gang, log = tenant.gang(spec, behave(chief={"seconds": 1}, ps={"ignore_result": True}))
    gang.run()
    assert tenant.pods(spec.run) == []
    assert log.has("did not end by themselves")


def test_a_replica_that_fails_for_good_ends_the_gang_and_is_named(tenant: GangTenant) -> None:
    """kubeflow/trainer#1059: the failed pod's reason stays in the record, and every replica's lines are kept."""
    spec = tenant.spec()
    said = {"say": ["marker"]}
    gang, log = tenant.gang(spec, behave(chief=said, ps=said, worker=said | {"seconds": 1, "exit": 40, "only": 1}))
    with pytest.raises(GangError, match=r"worker-1: exit code 40 \(UserError\)") as caught:
        gang.run()
    assert caught.value.final
    assert tenant.pods(spec.run) == []
    for replica in ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1"):
        assert log.count(f"[{replica}] marker") == 1


def test_a_bad_result_is_told_once_and_then_tried_again(tenant: GangTenant) -> None:
    spec = tenant.spec()
    gang, _ = tenant.gang(spec, behave(chief={"seconds": 0.5, "exit": 45}))
    with pytest.raises(GangError, match="as told") as caught:
        gang.run()
    assert not caught.value.final
    gang, _ = tenant.gang(spec, behave(chief={"seconds": 0.5}))
    assert gang.run().generation == 2


def test_a_chief_that_ends_without_a_result_is_lost(tenant: GangTenant) -> None:
    spec = tenant.spec()
    gang, _ = tenant.gang(spec, behave(chief={"seconds": 0.5, "silent": True}))
    with pytest.raises(GangError, match="without a result") as caught:
        gang.run()
    assert (caught.value.reason, caught.value.final) == ("Lost", False)
    assert tenant.pods(spec.run) == []


def test_the_next_try_adopts_the_gang(tenant: GangTenant) -> None:
    """apache/airflow#35676: at most one live pod per role and index, whatever became of the task that made it."""
    spec = tenant.spec()
    command = behave(chief={"seconds": 8})
    first, log = tenant.gang(spec, command)
    running = Running(first)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    before = {pod.uid for pod in tenant.pods(spec.run)}
    running.leave()
    assert isinstance(running.error, GangLeft)
    assert {pod.uid for pod in tenant.pods(spec.run)} == before
    second, log = tenant.gang(spec, command)
    running = Running(second)
    wait_for(lambda: log.has("adopted (5 pods"), "the gang is adopted")
    assert {pod.uid for pod in tenant.pods(spec.run)} == before
    assert running.result().generation == 1


def test_a_gang_that_ended_while_nobody_watched_is_not_trained_again(tenant: GangTenant) -> None:
    spec = tenant.spec()
    command = behave(chief={"seconds": 3})
    first, log = tenant.gang(spec, command)
    running = Running(first)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    running.leave()
    wait_for(lambda: tenant.store.exists(keys.generation_result(spec.run, 1)), "the chief has ended")
    second, _ = tenant.gang(spec, command)
    assert second.run().generation == 1
    assert tenant.pods(spec.run) == []


def test_half_a_gang_is_taken_down_and_begun_anew(tenant: GangTenant) -> None:
    spec = tenant.spec()
    first, log = tenant.gang(spec, behave(chief={"seconds": 60}))
    running = Running(first)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    running.leave()
    old = {pod.uid for pod in tenant.pods(spec.run)}
    ps = names.job_name(spec.run, 1, names.ROLE_PS)
    tenant.batch.delete_namespaced_job(ps, tenant.namespace, propagation_policy="Background")
    wait_for(lambda: not any(pod.role == "ps" for pod in tenant.pods(spec.run)), "the parameter servers are gone")
    second, log = tenant.gang(spec, behave(chief={"seconds": 1}))
    assert second.run().generation == 2
    assert log.has("taking it down")
    assert not old & {pod.uid for pod in tenant.pods(spec.run)}


def test_a_gang_of_another_spec_is_not_adopted(tenant: GangTenant) -> None:
    spec = tenant.spec()
    first, log = tenant.gang(spec, behave(chief={"seconds": 60}))
    running = Running(first)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    running.leave()
    other = spec.model_copy(update={"seed": 2})
    second, _ = tenant.gang(other, behave(chief={"seconds": 1}))
    assert second.run().generation == 2


def test_the_objects_die_with_the_chiefs_job(tenant: GangTenant) -> None:
    """The net that needs nobody: what the chief's Job owns cannot outlive it."""
    spec = tenant.spec()
    first, log = tenant.gang(spec, behave(chief={"seconds": 60}))
    running = Running(first)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs")
    running.leave()
    chief = names.job_name(spec.run, 1, names.ROLE_CHIEF)
    job = tenant.batch.read_namespaced_job(chief, tenant.namespace)
    assert job.spec.active_deadline_seconds == spec.training.deadline_s
    assert job.spec.ttl_seconds_after_finished == 600
    tenant.batch.delete_namespaced_job(chief, tenant.namespace, propagation_policy="Background")
    wait_for(lambda: tenant.pods(spec.run) == [], "every pod is gone")
    left = k8s.BatchV1Api(tenant.api).list_namespaced_job(tenant.namespace, label_selector=labels.run_selector(spec.run)).items
    assert left == []
