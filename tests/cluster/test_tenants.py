"""A tenant in a cluster, from its file: what ``sync`` makes, finds changed and leaves alone; what ``clean_up`` may and does."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Iterator

import pytest
from kubernetes import client as k8s

from tests.cluster.support import Profile
from tests.cluster.tenant_support import only_tenant, secret, tenant_of, told
from tests.fixtures.identities import Identities
from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainyard.contract import environment, keys, names
from trainyard.contract.run_spec import RunSpec
from trainyard.errors import RefusedError
from trainyard.kube import quota
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.settings import Settings
from trainyard.settings.network import Destination
from trainyard.store import Store
from trainyard.upkeep.clean_up import clean_up
from trainyard.upkeep.sync import sync_cluster

RESOURCES = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "16Mi"}
SLEEP = ["python3", "-c", "import time; time.sleep(600)"]


def resources(settings: Settings) -> dict[str, str]:
    return {name: amount for name, amount in RESOURCES.items() if settings.cluster.counts_scratch or name != "ephemeral-storage"}


class TestSync:
    def test_all_of_a_tenant_is_made_once_and_a_dry_run_makes_nothing(self, settings: Settings, cluster_api: k8s.ApiClient) -> None:
        core, tenant = k8s.CoreV1Api(cluster_api), only_tenant(settings)
        here = names.namespace(tenant.name)
        said = sync_cluster(settings, dry_run=True)
        assert here not in {found.metadata.name for found in core.list_namespace().items}

        made = sync_cluster(settings)
        assert told(made) == told(said)
        prefix = settings.cluster.s3.bucket_prefix
        mine = {(action, what) for action, what in told(made) if tenant.name in what}
        assert mine == {
            ("create", f"Namespace {here}"),
            ("create", f"ResourceQuota {here}/tenant"),
            ("create", f"LimitRange {here}/tenant"),
            ("create", f"NetworkPolicy {here}/tenant"),
            ("create", f"ServiceAccount {here}/{names.SERVICE_ACCOUNT}"),
            ("create", f"RoleBinding {here}/{names.ROLE_SYNC_TENANT}"),
            ("create", f"RoleBinding {here}/{names.SERVICE_ACCOUNT_RUN}"),
            ("create", f"RoleBinding {here}/{names.SERVICE_ACCOUNT_UPKEEP}"),
            ("create", f"Secret {here}/{names.SECRET_RUN}"),
            ("create", f"Secret {here}/{names.SECRET_EXPORT}"),
            ("create", f"bucket {prefix}-{tenant.name}"),
            ("create", f"bucket {prefix}-{tenant.name}-models"),
            ("create", f"S3 identity {prefix}-{tenant.name}-run"),
            ("create", f"S3 identity {prefix}-{tenant.name}-export"),
        }
        hard = core.read_namespaced_resource_quota("tenant", here).spec.hard
        assert (hard["pods"], hard["limits.memory"]) == (str(tenant.slots), f"{2 * tenant.slots}Gi")

        before = secret(core, names.SECRET_RUN, here)
        assert sync_cluster(settings) == []
        assert secret(core, names.SECRET_RUN, here) == before
        shown = "\n".join(map(str, said + made))
        assert before["secret_key"] not in shown

    def test_keys_in_the_secrets_open_the_right_buckets(self, settings: Settings, cluster_api: k8s.ApiClient, s3_server: S3Server) -> None:
        sync_cluster(settings)
        core, tenant = k8s.CoreV1Api(cluster_api), only_tenant(settings)
        models = names.models_bucket(settings.cluster.s3.bucket_prefix, tenant.name)

        def as_identity(name: str) -> Store:
            held = secret(core, name, names.namespace(tenant.name))
            return Store(models, s3_server.endpoint, s3_server.region, held["access_key"], held["secret_key"])

        as_identity(names.SECRET_EXPORT).put_json("m/champion.json", {"version": 1})
        with pytest.raises(RefusedError):
            as_identity(names.SECRET_RUN).put_json("m/champion.json", {"version": 2})

    def test_what_people_changed_is_told_and_put_right(self, settings: Settings, cluster_api: k8s.ApiClient) -> None:
        sync_cluster(settings)
        core, tenant = k8s.CoreV1Api(cluster_api), only_tenant(settings)
        here = names.namespace(tenant.name)
        core.patch_namespaced_resource_quota("tenant", here, {"spec": {"hard": {"pods": "99"}}})
        core.patch_namespace(here, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged", "theirs": "stays"}}})
        core.delete_namespaced_limit_range("tenant", here)
        said = sync_cluster(settings, dry_run=True)
        assert core.read_namespaced_resource_quota("tenant", here).spec.hard["pods"] == "99"
        assert told(said) == {
            ("update", f"Namespace {here}"),
            ("update", f"ResourceQuota {here}/tenant"),
            ("create", f"LimitRange {here}/tenant"),
        }
        assert any(f"spec.hard.pods 99 → {tenant.slots}" in change.detail for change in said)
        assert told(sync_cluster(settings)) == told(said)
        labels = core.read_namespace(here).metadata.labels
        assert (labels["pod-security.kubernetes.io/enforce"], labels["theirs"]) == ("restricted", "stays")
        assert sync_cluster(settings) == []

    def test_a_changed_file_changes_the_quota_alone(self, settings: Settings, cluster_api: k8s.ApiClient) -> None:
        sync_cluster(settings)
        tenant = only_tenant(settings)
        more = dataclasses.replace(settings, tenants={tenant.name: tenant_of(settings, tenant.name, slots=tenant.slots + 3)})
        changes = sync_cluster(more)
        here = names.namespace(tenant.name)
        assert told(changes) == {("update", f"ResourceQuota {here}/tenant"), ("update", f"LimitRange {here}/tenant")}
        hard = k8s.CoreV1Api(cluster_api).read_namespaced_resource_quota("tenant", here).spec.hard
        assert hard["pods"] == str(tenant.slots + 3)
        assert sync_cluster(more) == []

    def test_policies_follow_the_files_and_go_with_what_asked_for_them(self, settings: Settings, cluster_api: k8s.ApiClient) -> None:
        tenant = only_tenant(settings)
        here = names.namespace(tenant.name)
        step = (Destination(cidr="10.0.0.0/8", ports=(443,)),)
        network = settings.cluster.network.model_copy(update={"steps": {"prepare": step}})
        more = dataclasses.replace(settings, cluster=settings.cluster.model_copy(update={"network": network}))
        sync_cluster(more)
        policies = k8s.NetworkingV1Api(cluster_api)
        theirs = {"metadata": {"name": "theirs"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}}
        gangs = {"metadata": {"name": "gang", "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: "r"}}}
        for policy in (theirs, {**gangs, "spec": theirs["spec"]}):
            policies.create_namespaced_network_policy(here, policy)
        (rule,) = policies.read_namespaced_network_policy("step-prepare", here).spec.egress
        # The embedded cluster's API server listens on loopback, for which Kubernetes has no endpoints.
        slices = k8s.DiscoveryV1Api(cluster_api).list_namespaced_endpoint_slice("default", field_selector="metadata.name=kubernetes").items
        servers = [address for slice_ in slices for endpoint in slice_.endpoints for address in endpoint.addresses]
        service = k8s.CoreV1Api(cluster_api).read_namespaced_service("kubernetes", "default").spec.cluster_ip
        assert set(rule.to[0].ip_block._except) == {f"{one}/32" for one in (*servers, service) if one.startswith("10.")}
        assert sync_cluster(more) == []

        assert told(sync_cluster(settings, dry_run=True)) == {("delete", f"NetworkPolicy {here}/step-prepare")}
        assert told(sync_cluster(settings)) == {("delete", f"NetworkPolicy {here}/step-prepare")}
        assert {one.metadata.name for one in policies.list_namespaced_network_policy(here).items} == {"tenant", "theirs", "gang"}
        assert sync_cluster(settings) == []

    def test_deleting_a_secret_rotates_its_key(self, settings: Settings, cluster_api: k8s.ApiClient, s3_server: S3Server) -> None:
        sync_cluster(settings)
        core, tenant = k8s.CoreV1Api(cluster_api), only_tenant(settings)
        here, bucket = names.namespace(tenant.name), names.data_bucket(settings.cluster.s3.bucket_prefix, tenant.name)
        old = secret(core, names.SECRET_RUN, here)
        core.delete_namespaced_secret(names.SECRET_RUN, here)
        assert told(sync_cluster(settings)) == {("create", f"Secret {here}/{names.SECRET_RUN}")}
        new = secret(core, names.SECRET_RUN, here)
        assert new["access_key"] != old["access_key"]
        list(Store(bucket, s3_server.endpoint, s3_server.region, new["access_key"], new["secret_key"]).list(""))
        with pytest.raises(RefusedError):
            list(Store(bucket, s3_server.endpoint, s3_server.region, old["access_key"], old["secret_key"]).list(""))

    def test_a_secret_whose_key_is_dead_gets_a_new_one(self, settings: Settings, cluster_api: k8s.ApiClient) -> None:
        sync_cluster(settings)
        core, here = k8s.CoreV1Api(cluster_api), names.namespace(only_tenant(settings).name)
        wrong = {"stringData": {"secret_key": "not-the-secret"}}
        core.patch_namespaced_secret(names.SECRET_EXPORT, here, wrong)
        (change,) = sync_cluster(settings)
        assert (change.action, change.what) == ("update", f"Secret {here}/{names.SECRET_EXPORT}")
        assert secret(core, names.SECRET_EXPORT, here)["secret_key"] != "not-the-secret"
        assert sync_cluster(settings) == []

    def test_a_namespace_of_somebody_else_is_not_taken(self, settings: Settings, cluster_api: k8s.ApiClient) -> None:
        here = names.namespace(only_tenant(settings).name)
        k8s.CoreV1Api(cluster_api).create_namespace({"metadata": {"name": here}})
        with pytest.raises(RefusedError, match=f"namespace {here} exists and is not Trainyard's"):
            sync_cluster(settings)
        assert "pod-security.kubernetes.io/enforce" not in k8s.CoreV1Api(cluster_api).read_namespace(here).metadata.labels

    def test_external_s3_is_left_alone_and_missing_secrets_are_named(self, settings: Settings) -> None:
        s3 = settings.cluster.s3.model_copy(update={"mode": "external"})
        external = dataclasses.replace(settings, cluster=settings.cluster.model_copy(update={"s3": s3}))
        changes = sync_cluster(external)
        here = names.namespace(only_tenant(settings).name)
        missing = {change.what for change in changes if change.action == "missing"}
        assert {f"Secret {here}/{names.SECRET_RUN}", f"Secret {here}/{names.SECRET_EXPORT}"} <= missing
        assert not any("bucket" in change.what or "S3 identity" in change.what for change in changes)


@dataclasses.dataclass
class Left:
    """A run that was killed in the middle: what it leaves, beside another run that is none of its business."""

    api: k8s.ApiClient
    settings: Settings
    profile: Profile
    spec: RunSpec

    @property
    def namespace(self) -> str:
        return names.namespace(self.spec.tenant)

    def pod(self, run: str, name: str, **labels: str) -> k8s.V1Pod:
        parts = PodParts(
            site=Site(self.profile.image, "IfNotPresent"),
            command=SLEEP,
            resources=resources(self.settings),
            scratch="16Mi",
            environment={},
            labels={names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: run, **labels},
        )
        return as_pod(pod_template(parts), name, self.namespace)

    def make(self) -> None:
        core, batch = k8s.CoreV1Api(self.api), k8s.BatchV1Api(self.api)
        core.create_namespaced_pod(self.namespace, self.pod(self.spec.run, "step", **{names.LABEL_STEP: "evaluate"}))
        core.create_namespaced_pod(self.namespace, self.pod("other-run", "other"))
        pod = self.pod(self.spec.run, "ps", **{names.LABEL_STEP: "train"})
        template = k8s.V1PodTemplateSpec(metadata=k8s.V1ObjectMeta(labels=pod.metadata.labels), spec=pod.spec)
        metadata = k8s.V1ObjectMeta(name="ps", labels=pod.metadata.labels)
        spec = k8s.V1JobSpec(template=template, completions=2, parallelism=2, completion_mode="Indexed")
        batch.create_namespaced_job(self.namespace, k8s.V1Job(metadata=metadata, spec=spec))
        service = k8s.V1ServiceSpec(cluster_ip="None", selector={"a": "b"}, ports=[k8s.V1ServicePort(port=2222)])
        core.create_namespaced_service(self.namespace, k8s.V1Service(metadata=metadata, spec=service))
        deadline = time.monotonic() + 60 * self.profile.patience
        while len(self.running()) < 4:
            assert time.monotonic() < deadline, f"only {self.running()} run"
            time.sleep(0.2)

    def running(self) -> list[str]:
        pods = k8s.CoreV1Api(self.api).list_namespaced_pod(self.namespace).items
        return sorted(pod.metadata.name for pod in pods if pod.status.phase == "Running")

    def objects(self) -> list[str]:
        core, batch = k8s.CoreV1Api(self.api), k8s.BatchV1Api(self.api)
        listed = [core.list_namespaced_pod, core.list_namespaced_service, batch.list_namespaced_job]
        return sorted(item.metadata.name for call in listed for item in call(self.namespace).items)


@pytest.fixture
def left(settings: Settings, cluster: tuple[str, Profile], cluster_api: k8s.ApiClient, s3_server: S3Server) -> Left:
    sync_cluster(settings)
    tenant, prefix = only_tenant(settings), settings.cluster.s3.bucket_prefix
    document = run_spec_document(
        run=f"r-{secrets.token_hex(4)}",
        tenant=tenant.name,
        storage__endpoint=s3_server.endpoint,
        storage__bucket=names.data_bucket(prefix, tenant.name),
        storage__models_bucket=names.models_bucket(prefix, tenant.name),
    )
    return Left(cluster_api, settings, cluster[1], RunSpec.model_validate(document))


@pytest.fixture
def upkeep_api(identities: Identities) -> Iterator[k8s.ApiClient]:
    """A client with the rights of ``clean_up``'s pod and no others."""
    with identities.client(identities.upkeep) as api:
        yield api


def upkeep_store(left: Left, s3_server: S3Server) -> Store:
    held = secret(k8s.CoreV1Api(left.api), names.SECRET_UPKEEP, names.PLATFORM_NAMESPACE)
    return Store(left.spec.storage.bucket, s3_server.endpoint, s3_server.region, held["access_key"], held["secret_key"])


class TestFewerSlots:
    """What runs is never ended by a number: new work waits."""

    def test_slots_lowered_below_what_runs(self, left: Left) -> None:
        core, tenant = k8s.CoreV1Api(left.api), only_tenant(left.settings)
        sizes = [left.pod("one", "a"), left.pod("two", "b")]
        for pod in sizes:
            core.create_namespaced_pod(left.namespace, pod)
        deadline = time.monotonic() + 60 * left.profile.patience
        while left.running() != ["a", "b"]:
            assert time.monotonic() < deadline, f"only {left.running()} run"
            time.sleep(0.2)
        fewer = dataclasses.replace(left.settings, tenants={tenant.name: tenant_of(left.settings, tenant.name, slots=1)})
        assert ("update", f"ResourceQuota {left.namespace}/tenant") in told(sync_cluster(fewer))
        wanted = quota.demand([resources(left.settings)])
        assert any("pods 1 needed" in str(short) for short in quota.room_for(core, left.namespace, wanted))
        with pytest.raises(k8s.ApiException) as refused:
            core.create_namespaced_pod(left.namespace, left.pod("three", "c"))
        assert quota.is_quota_exceeded(refused.value)
        assert left.running() == ["a", "b"]

    def test_a_tenant_that_drains_keeps_its_quota_until_it_is_drained(self, left: Left) -> None:
        core, tenant = k8s.CoreV1Api(left.api), only_tenant(left.settings)
        draining = dataclasses.replace(left.settings, tenants={tenant.name: tenant_of(left.settings, tenant.name, state="draining")})

        def hard() -> dict[str, str]:
            found: dict[str, str] = core.read_namespaced_resource_quota("tenant", left.namespace).spec.hard
            return found

        before = hard()
        for drained in ((), None):  # runs that have not ended; an Airflow that was not asked
            assert sync_cluster(draining, drained=drained) == []
            assert hard() == before
        (change,) = sync_cluster(draining, drained={tenant.name})
        assert (change.action, change.what) == ("update", f"ResourceQuota {left.namespace}/tenant")
        assert {amount for name, amount in hard().items() if name in ("pods", "limits.cpu", "limits.memory")} == {"0"}
        assert sync_cluster(draining, drained={tenant.name}) == []
        # Who does not know leaves it as it is: it does not open again.
        assert sync_cluster(draining) == []
        with pytest.raises(k8s.ApiException) as refused:
            core.create_namespaced_pod(left.namespace, left.pod("one", "late"))
        assert quota.is_quota_exceeded(refused.value)


class TestCleanUp:
    def test_nothing_of_the_run_stays_and_nothing_else_goes(self, left: Left, upkeep_api: k8s.ApiClient, s3_server: S3Server) -> None:
        left.make()
        store = upkeep_store(left, s3_server)
        s3_server.client().create_multipart_upload(Bucket=store.bucket, Key=f"{keys.saved_model(left.spec.run)}x")
        lines: list[str] = []
        done = clean_up(upkeep_api, store, tenant=left.spec.tenant, run=left.spec.run, outcome="cancelled", log=lines.append)
        assert left.objects() == ["other"]
        assert (done.ended_uploads, done.outcome) == (1, "cancelled")
        assert done.took_s < 30 * left.profile.patience
        assert (store.get_json(keys.run_result(left.spec.run)) or {})["outcome"] == "cancelled"
        again = clean_up(upkeep_api, store, tenant=left.spec.tenant, run=left.spec.run, outcome="cancelled", log=lines.append)
        assert (again.ended_uploads, again.outcome) == (0, "cancelled")
        assert any(line.startswith(f"run {left.spec.run}: nothing left") for line in lines)

    def test_its_identity_may_delete_and_nothing_more(self, left: Left, upkeep_api: k8s.ApiClient) -> None:
        core = k8s.CoreV1Api(upkeep_api)
        for call in (
            lambda: core.create_namespaced_pod(left.namespace, left.pod("r", "mine")),
            lambda: core.read_namespaced_secret(names.SECRET_EXPORT, left.namespace),
            lambda: core.list_namespaced_pod("kube-system"),
            lambda: core.delete_namespace(left.namespace),
            lambda: core.read_namespaced_secret(names.SECRET_UPKEEP, names.PLATFORM_NAMESPACE),
        ):
            with pytest.raises(k8s.ApiException) as refused:
                call()
            assert refused.value.status == 403

    def test_as_the_last_pod_of_a_run(self, left: Left, s3_server: S3Server) -> None:
        if not left.profile.embedded:
            pytest.skip("the image of the platform's own pods is named by a site's profile")
        left.make()
        parts = PodParts(
            site=Site(left.settings.cluster.images.airflow, "IfNotPresent"),
            command=["python", "-m", "trainyard.upkeep", "clean-up", "--tenant", left.spec.tenant, "--run", left.spec.run],
            resources={"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "256Mi"},
            scratch="256Mi",
            environment={environment.RUN_SPEC: left.spec.to_json()},
            labels={names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: left.spec.run},
            secrets={
                environment.S3_ACCESS_KEY: (names.SECRET_UPKEEP, "access_key"),
                environment.S3_SECRET_KEY: (names.SECRET_UPKEEP, "secret_key"),
            },
            service_account=names.SERVICE_ACCOUNT_UPKEEP,
            api_access=True,
        )
        core, name = k8s.CoreV1Api(left.api), f"{left.spec.run}-clean-up"
        core.create_namespaced_pod(names.PLATFORM_NAMESPACE, as_pod(pod_template(parts), name, names.PLATFORM_NAMESPACE))
        try:
            deadline = time.monotonic() + 90 * left.profile.patience
            while (phase := core.read_namespaced_pod(name, names.PLATFORM_NAMESPACE).status.phase) not in ("Succeeded", "Failed"):
                assert time.monotonic() < deadline, f"the pod is {phase}"
                time.sleep(0.2)
            log = core.read_namespaced_pod_log(name, names.PLATFORM_NAMESPACE)
            assert phase == "Succeeded", log
        finally:
            core.delete_namespaced_pod(name, names.PLATFORM_NAMESPACE, grace_period_seconds=0)
        assert left.objects() == ["other"]
        assert f"run {left.spec.run}: outcome failed" in log
