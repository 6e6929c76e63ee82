"""What tenant A's pods may try on the cluster: refused, each (docs/isolation.md). The namespaces hold what ``sync`` makes."""

from __future__ import annotations

import copy
import dataclasses
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import wait_for
from tests.cluster.support import Json, Profile
from tests.cluster.tenant_support import CONFIG, tenant_of
from tests.fixtures.identities import may
from trainyard.contract import names
from trainyard.settings import Tenant, load
from trainyard.upkeep import objects
from trainyard.upkeep.applying import Applier


@dataclasses.dataclass
class Two:
    """Two tenants' namespaces: the one the attempts come from, and the one that they are on."""

    admin: k8s.ApiClient
    image: str
    mine: str
    theirs: str

    @property
    def core(self) -> k8s.CoreV1Api:
        return k8s.CoreV1Api(self.admin)

    def pod(self, **spec: Any) -> Json:
        """A pod that A's namespace admits, before ``spec`` is written over it."""
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {"name": "main", "image": self.image, "command": ["sh", "-c", "sleep 1"], "securityContext": security}
        base: Json = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "serviceAccountName": names.SERVICE_ACCOUNT,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        return {"metadata": {"generateName": "try-"}, "spec": {**base, **spec}}

    def container(self, **fields: Any) -> list[Json]:
        """The good container with fields replaced."""
        made = copy.deepcopy(self.pod()["spec"]["containers"][0])
        for key, value in fields.items():
            made[key] = {**made.get(key, {}), **value} if isinstance(value, dict) else value
        return [made]

    def refused(self, pod: Json, *words: str) -> None:
        with pytest.raises(k8s.ApiException) as caught:
            self.core.create_namespaced_pod(self.mine, pod, dry_run="All")
        # 422: an API server that knows no privileged containers at all.
        assert caught.value.status in (403, 422), caught.value
        assert any(word in str(caught.value.body) for word in words), caught.value.body


@pytest.fixture(scope="module")
def tenant() -> Tenant:
    """The first of the samples, under a name of its own."""
    samples = load(CONFIG, environ={})
    return tenant_of(samples, f"t{secrets.token_hex(4)}")


@pytest.fixture(scope="module")
def two(tenant: Tenant, cluster: tuple[str, Profile], cluster_api: k8s.ApiClient) -> Iterator[Two]:
    profile = load(CONFIG, environ={}).cluster.model_copy(update={"counts_scratch": cluster[1].evicts_full_volumes})
    other = tenant.model_copy(update={"name": f"{tenant.name}-b"})
    applier = Applier(cluster_api)
    for one in (tenant, other):
        for manifest in objects.tenant_objects(one, profile):
            applier.apply(manifest, dry_run=False)
    made = Two(cluster_api, cluster[1].image, names.namespace(tenant.name), names.namespace(other.name))
    wait_for(lambda: bool(made.core.read_namespaced_resource_quota(objects.QUOTA, made.mine).status.used), "the quota is counted")
    yield made
    for namespace in (made.mine, made.theirs):
        made.core.delete_namespace(namespace, grace_period_seconds=0)


def test_a_good_pod_is_admitted(two: Two) -> None:
    """Else everything below would be refused for nothing."""
    two.core.create_namespaced_pod(two.mine, two.pod(), dry_run="All")


def test_pods_that_want_more_of_their_node_than_a_pod_may(two: Two) -> None:
    """By whoever may make pods here, Airflow's own identity too: the namespace decides, not the maker."""
    root = {"runAsNonRoot": False, "runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    two.refused(two.pod(securityContext=root), "runAsNonRoot", "runAsUser")
    two.refused(two.pod(containers=two.container(securityContext={"runAsUser": 0})), "runAsUser")
    two.refused(two.pod(containers=two.container(securityContext={"privileged": True, "allowPrivilegeEscalation": True})), "privileged")
    two.refused(two.pod(containers=two.container(securityContext={"allowPrivilegeEscalation": True})), "allowPrivilegeEscalation")
    two.refused(two.pod(containers=two.container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})), "capabilities")
    unconfined = {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "Unconfined"}}
    two.refused(two.pod(securityContext=unconfined), "seccompProfile")
    two.refused(two.pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "hostPath")
    for host in ("hostNetwork", "hostPID", "hostIPC"):
        two.refused(two.pod(**{host: True}), "host namespaces")
    two.refused(two.pod(containers=two.container(ports=[{"containerPort": 80, "hostPort": 8080}])), "hostPort")


def test_pods_that_want_more_than_the_tenant_has(two: Two, tenant: Tenant) -> None:
    for resource, amount in {"memory": "1Ti", "cpu": "1000"}.items():
        limits = {"memory": tenant.slot.memory, "cpu": tenant.slot.cpu, resource: amount}
        two.refused(two.pod(containers=two.container(resources={"limits": limits, "requests": limits})), "maximum", "exceeded quota")
    limits = {"memory": tenant.slot.memory, "cpu": tenant.slot.cpu, "nvidia.com/gpu": "8"}
    two.refused(two.pod(containers=two.container(resources={"limits": limits, "requests": limits})), "exceeded quota")


def test_things_that_cost_outside_of_the_slots(two: Two) -> None:
    ports = [{"port": 80, "nodePort": 30099}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for make in (
        lambda: two.core.create_namespaced_service(two.mine, {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}),
        lambda: two.core.create_namespaced_service(
            two.mine, {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
        ),
        lambda: two.core.create_namespaced_persistent_volume_claim(two.mine, {"metadata": {"name": "c"}, "spec": claim}),
    ):
        with pytest.raises(k8s.ApiException, match="exceeded quota"):
            make()


def test_a_pod_has_no_token_and_its_identity_may_nothing(two: Two, cluster_api: k8s.ApiClient) -> None:
    account = two.core.read_namespaced_service_account(names.SERVICE_ACCOUNT, two.mine)
    assert account.automount_service_account_token is False
    # Even with a token of that identity, as if one had been stolen:
    token = two.core.create_namespaced_service_account_token(names.SERVICE_ACCOUNT, two.mine, {"spec": {"expirationSeconds": 600}})
    stolen = k8s.Configuration()
    stolen.host, stolen.ssl_ca_cert = cluster_api.configuration.host, cluster_api.configuration.ssl_ca_cert
    stolen.api_key = {"authorization": f"Bearer {token.status.token}"}
    with k8s.ApiClient(stolen) as api:
        for namespace in (two.mine, two.theirs, names.PLATFORM_NAMESPACE, names.SYSTEM_NAMESPACE, "kube-system"):
            for verb, group, resource, subresource in (
                ("list", "", "pods", ""),
                ("create", "", "pods", ""),
                ("get", "", "pods", "log"),
                ("create", "", "pods", "exec"),
                ("create", "", "pods", "portforward"),
                ("get", "", "secrets", ""),
                ("delete", "batch", "jobs", ""),
                ("update", "", "resourcequotas", ""),
                ("delete", "networking.k8s.io", "networkpolicies", ""),
                ("create", "", "serviceaccounts", "token"),
                ("create", "rbac.authorization.k8s.io", "rolebindings", ""),
            ):
                asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
                assert not may(api, namespace=namespace, **asked), (namespace, asked)
        for call in (
            lambda: k8s.CoreV1Api(api).read_namespaced_secret(names.SECRET_RUN, two.theirs),
            lambda: k8s.CoreV1Api(api).read_namespaced_secret(names.SECRET_EXPORT, two.mine),
            lambda: k8s.CoreV1Api(api).list_namespace(),
            lambda: k8s.CoreV1Api(api).list_node(),
        ):
            with pytest.raises(k8s.ApiException) as caught:
                call()
            assert caught.value.status == 403


def test_a_secret_or_an_identity_of_another_namespace_cannot_be_named(two: Two) -> None:
    """A pod names Secrets and identities of its own namespace only; the platform's are not there."""
    own = {secret.metadata.name for secret in two.core.list_namespaced_secret(two.mine).items}
    assert names.SECRET_UPKEEP not in own
    two.refused(two.pod(serviceAccountName=names.SERVICE_ACCOUNT_UPKEEP), "not found")
    two.refused(two.pod(serviceAccountName=names.SERVICE_ACCOUNT_RUN), "not found")
