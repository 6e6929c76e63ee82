"""What a cluster profile gives every pod and Job arrives: with the API server's own judgement, and inside the container."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import GangTenant, Running, behave, wait_for
from tests.cluster.support import Namespace as Cases
from tests.cluster.support import Profile, ended, terminated
from tests.cluster.tenant_support import only_tenant, told
from tests.fixtures.identities import kubectl, wait_for_right
from trainyard.contract import environment, names
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.settings import Settings
from trainyard.settings.clusters import PortRange
from trainyard.settings.site_pods import SitePods, Toleration
from trainyard.upkeep.sync import sync_cluster

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture
def priority(cluster_api: k8s.ApiClient) -> Iterator[str]:
    """A PriorityClass of the site's."""
    scheduling, name = k8s.SchedulingV1Api(cluster_api), f"site-{secrets.token_hex(3)}"
    scheduling.create_priority_class({"metadata": {"name": name}, "value": -10, "globalDefault": False})
    yield name
    scheduling.delete_priority_class(name)


def test_every_pod_and_job_of_a_gang_has_what_the_site_gives(tenant: GangTenant, priority: str) -> None:
    pods = SitePods(
        labels={"example.com/team": "ml"},
        annotations={"example.com/note": "any text: at all"},
        node_selector={"kubernetes.io/os": "linux"},
        tolerations=(Toleration(key="dedicated", value="ml", effect="NoSchedule"),),
        priority_class_name=priority,
        scheduler_name="default-scheduler",
    )
    spec, before = tenant.spec(), tenant.profile
    tenant.profile = before.model_copy(update={"pods": pods, "image_pull_secrets": ("registry",)})
    try:
        running = Running(tenant.gang(spec, behave(chief={"seconds": 3}))[0])
    finally:
        tenant.profile = before
    wait_for(lambda: len(tenant.pods(spec.run)) == 5, "the pods exist")
    selector = f"{names.LABEL_RUN}={spec.run}"
    made = tenant.core.list_namespaced_pod(tenant.namespace, label_selector=selector).items
    jobs = tenant.batch.list_namespaced_job(tenant.namespace, label_selector=selector).items
    running.result()
    assert (len(made), len(jobs)) == (5, 3)
    for thing in (*made, *jobs):
        assert thing.metadata.labels["example.com/team"] == "ml"
        assert thing.metadata.annotations["example.com/note"] == "any text: at all"
    for pod in made:
        assert pod.spec.node_selector == {"kubernetes.io/os": "linux"}
        assert ("dedicated", "Equal", "ml", "NoSchedule") in {(t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations}
        assert (pod.spec.priority_class_name, pod.spec.priority) == (priority, -10)
        assert [secret.name for secret in pod.spec.image_pull_secrets] == ["registry"]


@pytest.fixture
def in_the_nodes_network(tenant: GangTenant, cluster: tuple[str, Profile]) -> Iterator[GangTenant]:
    """The tenant, where pods use their node's network: its namespace takes them, and *run* sees which ports are taken."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    before, rights = tenant.profile, ["-f", "deploy/rbac/optional/ports.yaml"]
    changes = {"pods": SitePods(host_network=True), "port": None, "ports": before.ports or PortRange(first=29000, last=29999, block=16)}
    tenant.core.patch_namespace(tenant.namespace, label)
    if not cluster[1].embedded:
        kubectl(cluster[0], "apply", "--server-side", *rights)
        wait_for_right(tenant.run_api, verb="list", group="batch", resource="jobs")
    tenant.profile = before.model_copy(update=changes)
    yield tenant
    tenant.profile = before
    if not cluster[1].embedded:
        kubectl(cluster[0], "delete", *rights)


def test_replicas_in_their_nodes_network_find_each_other(in_the_nodes_network: GangTenant) -> None:
    tenant = in_the_nodes_network
    spec = tenant.spec()
    gang, log = tenant.gang(spec, behave(chief={"seconds": 1, "meet": True}, ps={"meet": True}, worker={"meet": True}))
    gang.run()
    assert log.has("[chief-0] met all")


def test_replicas_find_each_other_by_their_addresses(tenant: GangTenant) -> None:
    gang, log = tenant.gang(tenant.spec(), behave(chief={"seconds": 1, "meet": True}, ps={"meet": True}, worker={"meet": True}))
    gang.run()
    assert log.has("[chief-0] met all")


def test_a_node_that_no_selector_finds_is_told_in_the_schedulers_words(namespace: Cases) -> None:
    parts = _parts(namespace, ["true"], SitePods(node_selector={"example.com/gpu": "none-has-it"}))
    name = namespace.core.create_namespaced_pod(namespace.name, as_pod(pod_template(parts), "nowhere", namespace.name)).metadata.name

    def told(pod: dict) -> bool:  # type: ignore[type-arg]
        return any("didn't match" in c.get("message", "") for c in pod["status"].get("conditions") or [])

    namespace.wait_for(name, told)


def _parts(namespace: Cases, command: list[str], pods: SitePods, *, ca_bundle: bool = False) -> PodParts:
    site = Site(namespace.profile.image, "IfNotPresent", ca_bundle=ca_bundle, pods=pods)
    small = {"cpu": "100m", "memory": "64Mi"}
    return PodParts(
        site=site, command=command, resources=small, scratch="16Mi", environment={}, labels={"a": "b"}, service_account="default"
    )


def test_a_pod_finds_the_authorities_of_s3_where_boto3_looks(namespace: Cases) -> None:
    body = {"metadata": {"name": names.CONFIG_MAP_CA}, "data": {names.CA_KEY: CERTIFICATE}}
    namespace.core.create_namespaced_config_map(namespace.name, body)
    program = f"import os; print(open(os.environ[{environment.S3_CA_BUNDLE!r}]).read(), end='')"
    parts = _parts(namespace, ["python3", "-c", program], SitePods(), ca_bundle=True)
    namespace.core.create_namespaced_pod(namespace.name, as_pod(pod_template(parts), "trusts", namespace.name))
    pod = namespace.wait_for("trusts", ended)
    assert namespace.logs("trusts") == CERTIFICATE
    assert terminated(pod)["exitCode"] == 0


class TestSync:
    def test_authorities_and_registry_secrets_come_to_every_tenant(
        self, settings: Settings, cluster_api: k8s.ApiClient, tmp_path: Path
    ) -> None:
        core, here, name = k8s.CoreV1Api(cluster_api), names.namespace(only_tenant(settings).name), f"registry-{secrets.token_hex(3)}"
        bundle = tmp_path / "ca.pem"
        bundle.write_text(CERTIFICATE)
        s3 = settings.cluster.s3.model_copy(update={"ca_bundle": str(bundle)})
        # boto3 is told to trust that file; plain http needs no trust.
        cluster = settings.cluster.model_copy(update={"image_pull_secrets": (name,), "s3": s3})
        wanted = dataclasses.replace(settings, cluster=cluster)
        changes = sync_cluster(wanted)
        try:
            assert ("missing", f"Secret {names.PLATFORM_NAMESPACE}/{name}") in told(changes)
            assert ("create", f"ConfigMap {here}/{names.CONFIG_MAP_CA}") in told(changes)
            for namespace in (here, names.PLATFORM_NAMESPACE):
                assert core.read_namespaced_config_map(names.CONFIG_MAP_CA, namespace).data == {names.CA_KEY: CERTIFICATE}

            login = base64.b64encode(json.dumps({"auths": {"r:5000": {"auth": "YTpi"}}}).encode()).decode()
            body = {"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": login}}
            core.create_namespaced_secret(names.PLATFORM_NAMESPACE, body)
            (change,) = sync_cluster(wanted)
            assert (change.action, change.what) == ("create", f"Secret {here}/{name}")
            assert "YTpi" not in str(change)
            copied = core.read_namespaced_secret(name, here)
            assert (copied.type, copied.data) == (body["type"], body["data"])
            assert sync_cluster(wanted) == []
        finally:
            core.delete_namespaced_config_map(names.CONFIG_MAP_CA, names.PLATFORM_NAMESPACE)
            if any(found.metadata.name == name for found in core.list_namespaced_secret(names.PLATFORM_NAMESPACE).items):
                core.delete_namespaced_secret(name, names.PLATFORM_NAMESPACE)

    def test_pods_in_their_nodes_network_are_admitted_where_the_profile_says_so(
        self, settings: Settings, cluster: tuple[str, Profile], cluster_api: k8s.ApiClient
    ) -> None:
        core, here = k8s.CoreV1Api(cluster_api), names.namespace(only_tenant(settings).name)
        site = Site(cluster[1].image, "IfNotPresent", pods=SitePods(host_network=True))
        small = {"cpu": "100m", "memory": "64Mi"}
        parts = PodParts(site=site, command=["true"], resources=small, scratch="16Mi", environment={}, labels={})
        pod = as_pod(pod_template(parts), "in-the-nodes-network", here)
        sync_cluster(settings)
        with pytest.raises(k8s.ApiException, match="hostNetwork"):
            core.create_namespaced_pod(here, pod, dry_run="All")
        pods = settings.cluster.pods.model_copy(update={"host_network": True})
        open_ = dataclasses.replace(settings, cluster=settings.cluster.model_copy(update={"pods": pods}))
        assert ("update", f"Namespace {here}") in told(sync_cluster(open_))
        core.create_namespaced_pod(here, pod, dry_run="All")
        sync_cluster(settings)
        with pytest.raises(k8s.ApiException, match="hostNetwork"):
            core.create_namespaced_pod(here, pod, dry_run="All")
