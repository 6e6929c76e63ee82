"""The four nets against left-over parameter servers, each alone: the other three are switched off, and nothing is left within its bound.

| net | who | bound that is stated | how it is switched off here |
|---|---|---|---|
| 1 | the replicas themselves | 2 s after a good end | their supervisor is replaced by one that never looks |
| 2 | the run: its operator, else ``clean_up`` | 5 s and a grace period | the operator is told to stop, and no teardown is run |
| 3 | Kubernetes: owner references, deadline, TTL | the run's deadline and 10 min | none of the three is in the manifests |
| 4 | the reaper | 5 min of grace, 5 min of schedule | it is not run |

Deadlines of the tests are generous; what is measured is printed. Nodes that die: test_gang_dead_node.py.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import Behaviour, GangTenant, Running, behave, wait_for
from tests.fixtures.identities import Identities, wait_for_right
from trainyard.contract import keys, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import gang_manifests
from trainyard.kube.gang_manifests import GangManifests
from trainyard.kube.labels import run_selector
from trainyard.operators.gang_cluster import GangCluster
from trainyard.operators.gang_run import GangRun
from trainyard.operators.run_access import spec_digest
from trainyard.upkeep import objects
from trainyard.upkeep.clean_up import clean_up
from trainyard.upkeep.reaping.executing import Reaper
from trainyard.upkeep.reaping.judging import RunState, judge
from trainyard.upkeep.reaping.order import Order, strays_of
from trainyard.upkeep.reaping.seen import roots

STUBBORN = {"ignore_result": True}
"""A replica with net 1 off: it works on whatever is written in S3."""
ENDLESS = behave(chief={"seconds": 3600}, ps=STUBBORN, worker=STUBBORN)
TRAINER = "localhost/trainyard/trainer:dev"


@pytest.fixture
def without_kubernetes_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests without owner references, deadlines and TTL."""
    build = gang_manifests.build

    def bare(*args: object, **kwargs: object) -> GangManifests:
        made = build(*args, **kwargs)  # type: ignore[arg-type]
        for job in (made.chief, *made.peers):
            job.spec.active_deadline_seconds = job.spec.ttl_seconds_after_finished = None
        return made

    monkeypatch.setattr(gang_manifests, "build", bare)
    monkeypatch.setattr(GangManifests, "owned_by", lambda self, chief: self)


@pytest.fixture
def upkeep(tenant: GangTenant, identities: Identities) -> Iterator[k8s.ApiClient]:
    with identities.client(identities.upkeep) as api:
        rbac = k8s.RbacAuthorizationV1Api(tenant.api)
        if not any(b.metadata.name == names.SERVICE_ACCOUNT_UPKEEP for b in rbac.list_namespaced_role_binding(tenant.namespace).items):
            rbac.create_namespaced_role_binding(tenant.namespace, objects.upkeep_binding(tenant.name))
        wait_for_right(api, namespace=tenant.namespace, verb="get", resource="pods", subresource="log")
        yield api


def left(tenant: GangTenant, behaviour: Behaviour, **changes: object) -> RunSpec:
    """A whole gang that its operator has left: net 2 is off."""
    spec = tenant.spec(gang__workers=1, gang__parameter_servers=2, **changes)
    gang, log = tenant.gang(spec, behaviour)
    running = Running(gang)
    wait_for(lambda: log.has("all 4 replicas run") or not running.is_alive(), f"the gang runs: {log.lines[-3:]}", 60)
    running.leave()
    return spec


def alive(tenant: GangTenant, spec: RunSpec) -> list[str]:
    """Pods whose containers have not ended."""
    return [pod.replica for pod in tenant.pods(spec.run) if not pod.over]


def objects_of(tenant: GangTenant, spec: RunSpec) -> list[str]:
    jobs = tenant.batch.list_namespaced_job(tenant.namespace, label_selector=run_selector(spec.run)).items
    return [*(job.metadata.name for job in jobs), *(pod.name for pod in tenant.pods(spec.run))]


def gone_within(tenant: GangTenant, spec: RunSpec, seconds: float, net: str) -> None:
    began = time.monotonic()
    wait_for(lambda: not objects_of(tenant, spec), f"net {net} leaves nothing", seconds)
    print(f"net {net}: nothing left after {time.monotonic() - began:.1f} s")


def stays(tenant: GangTenant, spec: RunSpec, seconds: float = 4.0) -> None:
    """The case would pass without its net otherwise: what is there does not go by itself."""
    before = sorted(alive(tenant, spec))
    time.sleep(seconds)
    assert sorted(alive(tenant, spec)) == before != []


def test_net_1_replicas_end_by_themselves(tenant: GangTenant, without_kubernetes_net: None) -> None:
    """Real supervisors over children that would sleep for an hour; nobody watches, and no Job can end another."""
    if tenant.profile.addressing != "host":
        pytest.skip("the trainer's image is named by a site's profile")
    spec = tenant.spec(gang__workers=1, gang__parameter_servers=2)
    profile = tenant.profile.model_copy(update={"images": tenant.profile.images.model_copy(update={"trainer": TRAINER})})
    supervised = ("python", "-m", "trainer.supervisor", "--", "sh", "-c")
    ends = """sleep 8; printf '{"checkpoint_step": 70, "loss": 0.5}' > result.json"""
    command = {names.ROLE_CHIEF: [*supervised, ends]} | {role: [*supervised, "sleep 3600"] for role in (names.ROLE_PS, names.ROLE_WORKER)}
    lines: list[str] = []
    cluster = GangCluster(tenant.run_api, profile, spec, spec_digest(spec), lines.append, command=command)
    running = Running(GangRun(cluster, tenant.store))
    wait_for(lambda: any("all 4 replicas run" in line for line in lines) or not running.is_alive(), f"the gang runs: {lines}", 60)
    running.leave()
    wait_for(lambda: tenant.store.exists(keys.generation_result(spec.run, 1)), "the chief has ended", 60)
    began = time.monotonic()
    wait_for(lambda: not alive(tenant, spec), "every replica has ended by itself", 20)
    print(f"net 1: all ended {time.monotonic() - began:.1f} s after the result")
    assert {pod.phase for pod in tenant.pods(spec.run)} == {"Succeeded"}


def test_net_2_the_operator_ends_what_does_not_end(tenant: GangTenant, without_kubernetes_net: None) -> None:
    spec = tenant.spec(gang__workers=1, gang__parameter_servers=2)
    gang, _ = tenant.gang(spec, behave(chief={"seconds": 1}, ps=STUBBORN, worker=STUBBORN))
    gang.run()
    assert objects_of(tenant, spec) == [], "its task ends only when its pods are gone"


def test_net_2_clean_up_ends_what_the_operator_left(tenant: GangTenant, upkeep: k8s.ApiClient, without_kubernetes_net: None) -> None:
    spec = left(tenant, ENDLESS)
    stays(tenant, spec)
    done = clean_up(upkeep, tenant.store, tenant=tenant.name, run=spec.run, log=lambda _: None)
    assert objects_of(tenant, spec) == []
    print(f"net 2: clean_up left nothing after {done.took_s:.1f} s")


@pytest.mark.parametrize("way", ["the chief has ended", "the chief's Job is deleted"])
def test_net_3_kubernetes_alone(tenant: GangTenant, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """With a TTL of seconds for one of ten minutes, which nobody would wait for."""
    monkeypatch.setattr(gang_manifests, "TTL_S", 2)
    chief = {"seconds": 4} if way == "the chief has ended" else {"seconds": 3600}
    spec = left(tenant, behave(chief=chief, ps=STUBBORN, worker=STUBBORN))
    if way == "the chief's Job is deleted":
        stays(tenant, spec)
        job = names.job_name(spec.run, 1, names.ROLE_CHIEF)
        tenant.batch.delete_namespaced_job(job, tenant.namespace, propagation_policy="Background")
    gone_within(tenant, spec, 60, f"3 ({way})")


@pytest.mark.long
def test_net_3_ends_a_chief_that_hangs_at_the_deadline(tenant: GangTenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_manifests, "TTL_S", 2)
    spec = left(tenant, ENDLESS, training__deadline_s=30, training__start_deadline_s=20)
    stays(tenant, spec)
    gone_within(tenant, spec, 30 + 60, "3 (deadline)")


def test_net_4_the_reaper_alone(tenant: GangTenant, upkeep: k8s.ApiClient, without_kubernetes_net: None) -> None:
    spec = left(tenant, ENDLESS)
    stays(tenant, spec)
    instance = names.instance(tenant.bucket, tenant.name)
    ended = RunState("failed", datetime.datetime.now(datetime.UTC))
    mine = [root for root in roots(tenant.run_api, tenant.name) if root.run == spec.run]
    # Within the grace time it is left to the other nets.
    now = datetime.datetime.now(datetime.UTC)
    assert judge(mine, instance, lambda *_: ended, now).young == 1
    judgement = judge(mine, instance, lambda *_: ended, now + datetime.timedelta(minutes=6))
    order = Order(
        instance=instance,
        dry_run=False,
        endpoint=None,
        region="us-east-1",
        buckets={tenant.name: tenant.bucket},
        strays=strays_of(judgement),
    )
    began = time.monotonic()
    report = Reaper(upkeep, lambda _: tenant.store, order, lambda _: None).carry_out()
    assert report.failed == []
    assert objects_of(tenant, spec) == []
    print(f"net 4: nothing left after {time.monotonic() - began:.1f} s")
