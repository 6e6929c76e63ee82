"""The three identities of ``deploy/rbac`` on a cluster: each may what its code does (all other cases run with them), and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import GangTenant
from tests.cluster.support import Profile
from tests.cluster.tenant_support import only_tenant, tenant_of, told
from tests.fixtures.identities import Identities, may
from trainyard.contract import names
from trainyard.errors import RefusedError
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.kube.takedown import abandon_pod
from trainyard.settings import Settings
from trainyard.upkeep import objects
from trainyard.upkeep.sync import sync_cluster


def refused(call: Callable[[], Any]) -> str:
    """The API server's words; fails if it did not refuse."""
    with pytest.raises(k8s.ApiException) as caught:
        call()
    assert caught.value.status in (403, 422), caught.value
    return str(caught.value.body)


class TestRun:
    def test_outside_of_tenants_namespaces_it_may_start_clean_up_and_nothing_else(self, tenant: GangTenant) -> None:
        for namespace in ("kube-system", "default", names.SYSTEM_NAMESPACE):
            assert not may(tenant.run_api, namespace=namespace, verb="list", resource="pods")
            assert not may(tenant.run_api, namespace=namespace, verb="create", resource="pods")
        assert may(tenant.run_api, namespace=names.PLATFORM_NAMESPACE, verb="create", resource="pods")
        assert not may(tenant.run_api, namespace=names.PLATFORM_NAMESPACE, verb="create", group="batch", resource="jobs")

    @pytest.mark.parametrize(
        ("verb", "group", "resource", "subresource"),
        [
            ("get", "", "secrets", ""),
            ("list", "", "secrets", ""),
            ("create", "", "pods", "exec"),
            ("create", "", "serviceaccounts", "token"),
            ("update", "", "resourcequotas", ""),
            ("delete", "", "resourcequotas", ""),
            ("create", "rbac.authorization.k8s.io", "rolebindings", ""),
            ("deletecollection", "", "pods", ""),
            ("delete", "", "namespaces", ""),
        ],
    )
    def test_in_a_tenants_namespace_it_may_not(self, tenant: GangTenant, verb: str, group: str, resource: str, subresource: str) -> None:
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        assert not may(tenant.run_api, namespace=tenant.namespace, **asked)

    def test_a_replica_on_a_dead_node_is_given_up(self, tenant: GangTenant, cluster: tuple[str, Profile]) -> None:
        site = Site(cluster[1].image, "IfNotPresent")
        small = {"cpu": "100m", "memory": "64Mi"}
        parts = PodParts(site=site, command=["sh", "-c", "sleep 600"], resources=small, scratch="16Mi", environment={}, labels={"a": "b"})
        tenant.core.create_namespaced_pod(tenant.namespace, as_pod(pod_template(parts), "lost", tenant.namespace))
        abandon_pod(k8s.CoreV1Api(tenant.run_api), "lost", tenant.namespace, "its node does not answer")
        assert not any(pod.metadata.name == "lost" for pod in tenant.core.list_namespaced_pod(tenant.namespace).items)

    def test_nodes_and_other_peoples_things_are_not_seen(self, tenant: GangTenant, cluster: tuple[str, Profile]) -> None:
        assert not may(tenant.run_api, verb="list", resource="nodes")
        assert not may(tenant.run_api, verb="list", resource="pods")
        # Blocks of ports are shared by all tenants where pods share one network: there it sees all Jobs.
        assert may(tenant.run_api, verb="list", group="batch", resource="jobs") is cluster[1].embedded


@pytest.fixture
def sync_api(identities: Identities) -> Iterator[k8s.ApiClient]:
    with identities.client(identities.sync) as api:
        yield api


class TestSync:
    def test_it_reads_no_secret_outside_of_tenants(self, settings: Settings, sync_api: k8s.ApiClient) -> None:
        sync_cluster(settings)
        here = names.namespace(only_tenant(settings).name)
        assert may(sync_api, namespace=here, verb="get", resource="secrets")
        assert may(sync_api, namespace=names.PLATFORM_NAMESPACE, verb="get", resource="secrets")
        for namespace in ("kube-system", "default", names.SYSTEM_NAMESPACE):
            assert not may(sync_api, namespace=namespace, verb="get", resource="secrets")

    def test_it_cannot_bind_itself_in_where_it_has_no_business(
        self, settings: Settings, cluster_api: k8s.ApiClient, sync_api: k8s.ApiClient
    ) -> None:
        binding = objects.sync_binding(only_tenant(settings).name)
        binding["metadata"] = {"name": names.ROLE_SYNC_TENANT}
        rbac = k8s.RbacAuthorizationV1Api(sync_api)
        foreign = k8s.CoreV1Api(cluster_api).create_namespace({"metadata": {"generateName": "tenant-of-somebody-"}}).metadata.name
        try:
            for namespace in ("kube-system", names.SYSTEM_NAMESPACE, names.PLATFORM_NAMESPACE, foreign):
                words = refused(lambda namespace=namespace: rbac.create_namespaced_role_binding(namespace, binding))  # type: ignore[misc]
                assert "tenants' namespaces only" in words
            core = k8s.CoreV1Api(sync_api)
            label = {"metadata": {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}}
            assert "tenants' namespaces only" in refused(lambda: core.patch_namespace(foreign, label))
        finally:
            k8s.CoreV1Api(cluster_api).delete_namespace(foreign)

    def test_it_cannot_give_rights_that_are_not_its_to_give(self, settings: Settings, sync_api: k8s.ApiClient) -> None:
        sync_cluster(settings)
        here = names.namespace(only_tenant(settings).name)
        rbac = k8s.RbacAuthorizationV1Api(sync_api)
        binding = objects.run_binding(only_tenant(settings).name) | {"metadata": {"name": "more"}}
        binding["roleRef"] = {**binding["roleRef"], "name": "cluster-admin"}
        assert "escalat" in refused(lambda: rbac.create_namespaced_role_binding(here, binding)) or "attempting to grant" in refused(
            lambda: rbac.create_namespaced_role_binding(here, binding)
        )
        role = {"metadata": {"name": "more"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
        refused(lambda: rbac.create_namespaced_role(here, role))
        refused(lambda: rbac.create_cluster_role(role))

    def test_it_makes_tenants_namespaces_and_no_others(self, sync_api: k8s.ApiClient) -> None:
        core = k8s.CoreV1Api(sync_api)
        assert "tenants' namespaces only" in refused(lambda: core.create_namespace({"metadata": {"name": "mine"}}))
        privileged = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
        assert "tenants' namespaces only" in refused(lambda: core.patch_namespace("kube-system", privileged))
        refused(lambda: core.delete_namespace("default"))

    def test_a_dry_run_for_a_second_tenant_asks_nothing_of_its_namespace(self, settings: Settings) -> None:
        sync_cluster(settings)
        both = dataclasses.replace(settings, tenants={**settings.tenants, "another-one": tenant_of(settings, "another-one")})
        said = told(sync_cluster(both, dry_run=True))
        assert ("create", "ResourceQuota tenant-another-one/tenant") in said
        assert not any(only_tenant(settings).name in what for _, what in said)

    def test_a_cluster_without_our_roles_is_told_how_to_get_them(
        self, settings: Settings, cluster_api: k8s.ApiClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "ROLES", ("trainyard-no-such-role",))
        admin = dataclasses.replace(settings, cluster=settings.cluster)
        with pytest.raises(RefusedError, match="trainyard-no-such-role"):
            sync_cluster(admin)
