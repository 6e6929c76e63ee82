"""The tenant's one number holds: whatever may run together fits into the quota, for any files that are accepted."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kubernetes import client as k8s
from kubernetes.utils.quantity import parse_quantity

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract.run_spec import GangSpec, RunSpec, SlotSpec
from trainyard.kube import gang_manifests, quota
from trainyard.kube.gang_manifests import gang_pods
from trainyard.kube.pod import Site, pod_template, trainer_parts
from trainyard.pipelines.form import gang_of
from trainyard.settings import Gang, Slot, Tenant
from trainyard.settings.checks import gang_fits, gang_has_gpus
from trainyard.settings.tenants import Extras
from trainyard.upkeep import objects

SITES = st.builds(Site, st.just("i:1"), st.just("Never"), st.booleans(), st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]))
COUNTS = st.integers(1, 6)
GANGS = st.builds(
    Gang,
    workers=COUNTS,
    parameter_servers=COUNTS,
    chief_slots=COUNTS,
    ps_slots=COUNTS,
    worker_slots=COUNTS,
    worker_gpus=st.integers(0, 3),
)
SLOTS = st.builds(
    Slot,
    cpu=st.one_of(st.integers(100, 4000).map(lambda n: f"{n}m"), st.decimals("0.1", "9.999", places=3).map(str)),
    memory=st.one_of(st.integers(512, 9000).map(lambda n: f"{n}Mi"), st.integers(1, 64).map(lambda n: f"{n}Gi")),
    scratch=st.one_of(st.integers(1, 5000).map(lambda n: f"{n}Ki"), st.integers(1, 64).map(lambda n: f"{n}Gi")),
)


@dataclass(frozen=True)
class Task:
    """What one task runs at once, and what it takes from the pool for it."""

    pool_slots: int
    pods: list[dict[str, str]]


def tenant_of(slots: int, slot: Slot, gpus: int) -> Tenant:
    return Tenant(name="any", owner="x", contact="x", slots=slots, slot=slot, gpus=gpus)


def spec_of(tenant: Tenant, gang: Gang, step_slots: int = 1) -> RunSpec:
    document = run_spec_document(
        gang=GangSpec(**gang.model_dump()).model_dump(), slot=SlotSpec(**tenant.slot.model_dump()).model_dump(), step_slots=step_slots
    )
    return RunSpec.model_validate(document)


def resources(template: k8s.V1PodTemplateSpec) -> dict[str, str]:
    (container,) = template.spec.containers
    return dict(container.resources.limits)


def gang_task(tenant: Tenant, gang: Gang, site: Site) -> Task:
    """The gang as it is made: what its Jobs ask for, not what was reckoned before."""
    spec = spec_of(tenant, gang)
    made = gang_manifests.build(spec, 1, gang_manifests.dns_addresses(spec, 1, 2222), site, spec_sha256="x")
    pods = [resources(job.spec.template) for job in (made.chief, *made.peers) for _ in range(job.spec.parallelism)]
    assert sorted(map(sorted, (p.items() for p in pods))) == sorted(map(sorted, (p.items() for p in gang_pods(spec, site))))
    return Task(gang_of(gang.model_dump(), None), pods)


def step_task(tenant: Tenant, step_slots: int, site: Site) -> Task:
    parts = trainer_parts(
        spec_of(tenant, Gang(workers=1, parameter_servers=1), step_slots), site, command=["c"], slots=step_slots, labels={}, environment_={}
    )
    return Task(step_slots, [resources(pod_template(parts))])


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 60), SLOTS, st.integers(0, 8), SITES, st.lists(GANGS, max_size=3), st.lists(st.integers(1, 60), max_size=4))
def test_whatever_the_pool_admits_together_fits_into_the_quota(
    slots: int, slot: Slot, gpus: int, site: Site, gangs: list[Gang], steps: list[int]
) -> None:
    tenant = tenant_of(slots, slot, gpus)
    accepted = [gang for gang in gangs if gang_fits(gang, tenant) is None and gang_has_gpus(gang, tenant) is None]
    tasks = [gang_task(tenant, gang, site) for gang in accepted]
    tasks += [step_task(tenant, taken, site) for taken in steps if taken <= tenant.slots]
    assume(tasks)
    hard = objects.resource_quota(tenant, counts_scratch=site.counts_scratch, gpu_resource=site.gpu_resource)["spec"]["hard"]
    one = k8s.V1ResourceQuota(metadata=k8s.V1ObjectMeta(name="tenant"), spec=k8s.V1ResourceQuotaSpec(hard=hard))
    one.status = k8s.V1ResourceQuotaStatus(hard=hard)
    running: list[Task] = []
    for task in tasks:
        alone = quota.shortages([one], quota.demand(task.pods))
        assert alone == [], "what files and forms accept fits into the empty namespace"
        if sum(other.pool_slots for other in running) + task.pool_slots <= tenant.slots:
            running.append(task)
    demand = quota.demand([pod for task in running for pod in task.pods])
    for resource, most in hard.items():
        if resource == f"requests.{site.gpu_resource}":
            continue  # counted apart from slots: see below
        assert demand.get(resource, Decimal(0)) <= parse_quantity(most), resource
    # Each pod counts for the slots that its task took, exactly: nothing is held that nobody uses.
    assert demand["limits.memory"] == sum(task.pool_slots for task in running) * parse_quantity(slot.memory)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8))
def test_gpus_beyond_the_tenants_wait_in_the_quota(gpus: int, used: int) -> None:
    tenant, site = tenant_of(60, Slot(cpu="1", memory="1Gi", scratch="1Gi"), gpus), Site("i:1", "Never")
    gang = Gang(workers=1, parameter_servers=1, worker_gpus=gpus)
    hard = objects.resource_quota(tenant)["spec"]["hard"]
    status = k8s.V1ResourceQuotaStatus(hard=hard, used={"requests.nvidia.com/gpu": str(min(used, gpus))})
    one = k8s.V1ResourceQuota(metadata=k8s.V1ObjectMeta(name="tenant"), spec=k8s.V1ResourceQuotaSpec(hard=hard), status=status)
    (short,) = quota.shortages([one], quota.demand(gang_task(tenant, gang, site).pods))
    assert (short.resource, short.never) == ("requests.nvidia.com/gpu", False)


@settings(max_examples=50, deadline=None)
@given(GANGS, st.dictionaries(st.sampled_from(["workers", "parameter_servers"]), COUNTS))
def test_a_form_that_changes_the_shape_changes_the_slots(gang: Gang, form: dict[str, int]) -> None:
    asked = gang.model_copy(update=form)
    spec = spec_of(tenant_of(60, Slot(cpu="1", memory="1Gi", scratch="1Gi"), 0), asked)
    slots = gang_manifests.replica_slots(spec)
    pods = sum(slots[role] * count for role, count in gang_manifests.replicas(spec).items())
    assert gang_of(gang.model_dump(), form) == asked.slots == pods


@pytest.mark.parametrize("state", ["active", "draining"])
def test_a_closed_quota_takes_nothing(state: str) -> None:
    slot = Slot(cpu="1", memory="1Gi", scratch="1Gi")
    tenant = tenant_of(6, slot, 2).model_copy(update={"state": state, "extras": Extras(volume_claims=3)})
    hard = objects.resource_quota(tenant, closed=True)["spec"]["hard"]
    assert {parse_quantity(amount) for amount in hard.values()} == {Decimal(0)}
    assert objects.resource_quota(tenant)["spec"]["hard"]["persistentvolumeclaims"] == "3"
