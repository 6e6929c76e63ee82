"""The reaper against a real cluster: gangs that nobody watches any more, Airflow's word on each, and the identity *upkeep* that removes."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import GangTenant, Running, behave, wait_for
from tests.fixtures.identities import Identities, wait_for_right
from trainyard.contract import keys, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import labels
from trainyard.upkeep import objects
from trainyard.upkeep.reaping.executing import Reaper, Report
from trainyard.upkeep.reaping.judging import Judgement, RunState, judge
from trainyard.upkeep.reaping.order import Order, strays_of
from trainyard.upkeep.reaping.seen import roots

LATER = datetime.timedelta(hours=1)
ENDED = RunState("failed", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))


@dataclasses.dataclass
class Site:
    """The reaper of the deployment that a tenant's gangs belong to, with Airflow's word as the test has it."""

    tenant: GangTenant
    upkeep: k8s.ApiClient
    airflow: dict[str, RunState | None] = dataclasses.field(default_factory=dict)
    """run_id → state; None is a run that Airflow does not have."""

    @property
    def instance(self) -> str:
        return names.instance(self.tenant.bucket, self.tenant.name)

    def left_gang(self, run_id: str, state: RunState | None, **changes: Any) -> RunSpec:
        """A whole gang, left by its operator, of a run that Airflow has this to say of."""
        run = names.run_name("digits-mlp", "dag", run_id)
        shape = {"gang__workers": 1, "gang__parameter_servers": 1, "dag_id": "dag", "run_id": run_id}
        spec = self.tenant.spec(run, **(shape | changes))
        gang, log = self.tenant.gang(spec, behave(chief={"seconds": 120, "say": [f"words of {run_id}"]}))
        running = Running(gang)
        wait_for(lambda: log.has("all 3 replicas run") or not running.is_alive(), f"the gang runs: {log.lines[-3:]}, {running.error}", 60)
        running.leave()
        self.airflow[run_id] = state
        return spec

    def judged(self) -> Judgement:
        """As the task of Airflow does it, with *run*'s rights, an hour from now."""
        now = datetime.datetime.now(datetime.UTC) + LATER
        return judge(roots(self.tenant.run_api, self.tenant.name), self.instance, lambda _, run_id: self.airflow[run_id], now)

    def carry_out(self, judgement: Judgement, *, dry_run: bool = False) -> tuple[Report, list[str]]:
        """As the pod does it."""
        buckets = {self.tenant.name: self.tenant.bucket}
        order = Order(
            instance=self.instance, dry_run=dry_run, endpoint=None, region="us-east-1", buckets=buckets, strays=strays_of(judgement)
        )
        said: list[str] = []
        return Reaper(self.upkeep, lambda _: self.tenant.store, order, said.append).carry_out(), said

    def uids(self, spec: RunSpec) -> set[str]:
        return {pod.uid for pod in self.tenant.pods(spec.run) if not pod.deleting}


@pytest.fixture
def site(tenant: GangTenant, identities: Identities) -> Iterator[Site]:
    """With the binding that sync makes."""
    with identities.client(identities.upkeep) as upkeep:
        rbac = k8s.RbacAuthorizationV1Api(tenant.api)
        if not any(b.metadata.name == names.SERVICE_ACCOUNT_UPKEEP for b in rbac.list_namespaced_role_binding(tenant.namespace).items):
            rbac.create_namespaced_role_binding(tenant.namespace, objects.upkeep_binding(tenant.name))
        wait_for_right(upkeep, namespace=tenant.namespace, verb="get", resource="pods", subresource="log")
        yield Site(tenant, upkeep)
        for job in tenant.batch.list_namespaced_job(tenant.namespace).items:
            with contextlib.suppress(k8s.ApiException):  # what the chief's Job owns goes with it
                tenant.batch.delete_namespaced_job(job.metadata.name, tenant.namespace, propagation_policy="Foreground")
        wait_for(lambda: not roots(tenant.api, tenant.name), "the next test finds nothing")


def test_strays_of_each_kind_go_with_their_logs_saved_and_what_is_not_a_stray_stays(site: Site) -> None:
    tenant = site.tenant
    never = site.left_gang("never", None)
    deleted = site.left_gang("deleted", None)
    tenant.store.put_json(keys.spec(deleted.run), deleted.model_dump(mode="json"))
    ended = site.left_gang("ended", ENDED)
    live = site.left_gang("live", RunState("running", None))
    foreign = site.left_gang("foreign", None, storage__bucket="another-airflows-bucket")
    before = {spec.run: site.uids(spec) for spec in (never, deleted, ended, live, foreign)}
    assert all(len(uids) == 3 for uids in before.values())
    judgement = site.judged()
    assert (judgement.live, judgement.foreign, judgement.unnamed) == (1, 3, [])

    would, said = site.carry_out(judgement, dry_run=True)
    assert dict(would.removed) == {"no run": 1, "run deleted": 1, "run ended": 1}
    assert {spec.run: site.uids(spec) for spec in (never, deleted, ended, live, foreign)} == before, "a dry run deletes nothing"
    assert not list(tenant.store.list(keys.logs(ended.run))), "nor writes"
    assert len(said) == 3

    did, said = site.carry_out(judgement)
    assert (dict(did.removed), did.failed, did.logs_saved) == (dict(would.removed), [], 9), said
    for spec in (never, deleted, ended):
        assert tenant.pods(spec.run) == []
        selector = labels.run_selector(spec.run)
        assert tenant.batch.list_namespaced_job(tenant.namespace, label_selector=selector).items == []
        (chief,) = (info.key for info in tenant.store.list(keys.logs(spec.run, "chief-0")) if info.key.endswith(".log"))
        assert f"words of {spec.run_id}" in tenant.store.get(chief).decode()
    assert site.uids(live) == before[live.run]
    assert site.uids(foreign) == before[foreign.run]
    assert site.judged().strays == []


def test_a_pod_without_a_job_is_a_stray_too(site: Site) -> None:
    """What the cluster's default of deletion leaves: kubernetes' own DELETE of a Job without a policy orphans its pods."""
    tenant = site.tenant
    spec = site.left_gang("orphaned", None)
    for job in tenant.batch.list_namespaced_job(tenant.namespace, label_selector=labels.run_selector(spec.run)).items:
        tenant.batch.delete_namespaced_job(job.metadata.name, tenant.namespace, propagation_policy="Orphan")

    def orphans() -> int:
        return sum(root.kind == "pod" and root.run == spec.run for root in roots(tenant.run_api, tenant.name))

    wait_for(lambda: orphans() == 3, "the pods have lost their Jobs")
    report, said = site.carry_out(site.judged())
    assert (dict(report.removed), report.failed) == ({"no run": 1}, []), said
    assert tenant.pods(spec.run) == []


def test_what_came_after_airflow_was_asked_is_left_alone(site: Site) -> None:
    """A run that a person cleared between the question and the deletion makes a new generation: it must live."""
    spec = site.left_gang("cleared", ENDED)
    judgement = site.judged()
    (stray,) = judgement.strays
    stray.roots.popitem()  # as if this one had come later
    before = site.uids(spec)
    report, _ = site.carry_out(judgement)
    assert (dict(report.removed), dict(report.left)) == ({}, {"changed since": 1})
    assert site.uids(spec) == before


def test_what_is_gone_by_itself_is_no_failure(site: Site) -> None:
    tenant = site.tenant
    spec = site.left_gang("gone", ENDED)
    judgement = site.judged()
    chief = names.job_name(spec.run, 1, names.ROLE_CHIEF)
    tenant.batch.delete_namespaced_job(chief, tenant.namespace, propagation_policy="Background")
    wait_for(lambda: all(root.run != spec.run for root in roots(tenant.run_api, tenant.name)), "all is gone")
    report, _ = site.carry_out(judgement)
    assert (dict(report.left), report.failed) == ({"gone by itself": 1}, [])


def test_one_run_that_cannot_be_removed_does_not_keep_the_others(site: Site) -> None:
    """The first is in a namespace where the reaper has no rights."""
    spec = site.left_gang("second", ENDED)
    judgement = site.judged()
    judgement.strays.insert(0, dataclasses.replace(judgement.strays[0], tenant="nobodys-tenant"))
    report, _ = site.carry_out(judgement)
    assert dict(report.removed) == {"run ended": 1}
    assert len(report.failed) == 1
    assert "nobodys-tenant" in report.failed[0]
    assert site.tenant.pods(spec.run) == []
