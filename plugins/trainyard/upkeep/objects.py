"""Kubernetes objects of a tenant and of the platform, as plain manifests. Pure: what is sent is decided here, how in :mod:`applying`.

A tenant's one number becomes a ResourceQuota of slots × slot. It counts pods that are Pending, Running and Terminating, so a step
whose pods are still ending holds its share: the next one waits, it does not fail.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from trainyard.contract import names
from trainyard.settings import ClusterProfile, Tenant
from trainyard.settings.quantities import times_cpu, times_memory
from trainyard.settings.tenants import Extras

QUOTA: Final = "tenant"
LIMITS: Final = "tenant"
_RBAC: Final = "rbac.authorization.k8s.io"

Manifest = dict[str, Any]


def metadata(name: str, namespace: str | None = None, tenant: str | None = None, **labels: str) -> Manifest:
    """An object's metadata: whose it is, in labels."""
    found: Manifest = {"name": name, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, **labels}}
    if tenant is not None:
        found["labels"][names.LABEL_TENANT] = tenant
    if namespace is not None:
        found["namespace"] = namespace
    return found


def _pod_security(*, host_network: bool) -> dict[str, str]:
    # No standard between `restricted` and `privileged` admits a pod in its node's network.
    levels = {"enforce": "privileged" if host_network else "restricted", "warn": "restricted", "audit": "restricted"}
    if host_network:
        del levels["warn"]  # every pod of ours would be warned of
    names_ = {f"pod-security.kubernetes.io/{mode}": level for mode, level in levels.items()}
    return names_ | {f"{name}-version": "latest" for name in names_}


def namespace(name: str, tenant: str | None = None, *, host_network: bool = False) -> Manifest:
    """A namespace in which only restricted pods are admitted (Pod Security Standards); any, where pods use their node's network."""
    about = metadata(name, tenant=tenant)
    about["labels"] |= _pod_security(host_network=host_network)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": about}


def service_account(name: str, namespace: str, tenant: str | None = None) -> Manifest:
    """An identity whose token no pod gets unless it mounts one by name."""
    about = metadata(name, namespace, tenant)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, "automountServiceAccountToken": False}


def resource_quota(tenant: Tenant, *, counts_scratch: bool = True, gpu_resource: str = "nvidia.com/gpu", closed: bool = False) -> Manifest:
    """slots × slot, at most one pod a slot, its GPUs, and of what costs outside the slots only what its file says.

    ``closed``: nothing at all may be made any more; for a tenant that is draining and has no run left.
    """
    slots, slot = 0 if closed else tenant.slots, tenant.slot
    amounts = {
        "cpu": times_cpu(slot.cpu, slots),
        "memory": times_memory(slot.memory, slots),
    }
    if counts_scratch:
        amounts["ephemeral-storage"] = times_memory(slot.scratch, slots)
    hard = {f"{side}.{resource}": amount for side in ("requests", "limits") for resource, amount in amounts.items()}
    extras = Extras() if closed else tenant.extras
    hard |= {
        "pods": str(slots),
        f"requests.{gpu_resource}": str(0 if closed else tenant.gpus),
        "persistentvolumeclaims": str(extras.volume_claims),
        "services.nodeports": str(extras.node_ports),
        "services.loadbalancers": str(extras.load_balancers),
    }
    about = metadata(QUOTA, names.namespace(tenant.name), tenant.name)
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": about, "spec": {"hard": hard}}


def limit_range(tenant: Tenant, *, counts_scratch: bool = True) -> Manifest:
    """A container that says nothing is worth one slot; none may be more than all slots."""
    slots, slot = tenant.slots, tenant.slot
    one = {"cpu": slot.cpu, "memory": slot.memory}
    most = {"cpu": times_cpu(slot.cpu, slots), "memory": times_memory(slot.memory, slots)}
    if counts_scratch:
        one["ephemeral-storage"] = slot.scratch
        most["ephemeral-storage"] = times_memory(slot.scratch, slots)
    limits = [{"type": "Container", "default": one, "defaultRequest": one, "max": most}]
    about = metadata(LIMITS, names.namespace(tenant.name), tenant.name)
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": about, "spec": {"limits": limits}}


def secret(name: str, namespace: str, values: Mapping[str, str], tenant: str | None = None) -> Manifest:
    """Values as a Secret of opaque type."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata(name, namespace, tenant), "data": data}


def config_map(name: str, namespace: str, values: Mapping[str, str], tenant: str | None = None) -> Manifest:
    """Texts that are no secret."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, namespace, tenant), "data": dict(values)}


def cluster_role(name: str) -> Manifest:
    """A ClusterRole of ``deploy/rbac`` by its name: its rules are the administrator's to give, not ours."""
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}}


def _binding(role: str, account: str, account_namespace: str, tenant: str) -> Manifest:
    """Gives a platform's identity a role, in this tenant's namespace only. Binding and ClusterRole are namesakes of the identity's part."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(role, names.namespace(tenant), tenant),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": account_namespace}],
    }


def sync_binding(tenant: str) -> Manifest:
    """Sync's own way into a tenant's namespace: all else in it comes after this."""
    return _binding(names.ROLE_SYNC_TENANT, names.SERVICE_ACCOUNT_SYNC, names.SYSTEM_NAMESPACE, tenant)


def run_binding(tenant: str) -> Manifest:
    """What Airflow's scheduler and workers may in a tenant's namespace."""
    return _binding(names.SERVICE_ACCOUNT_RUN, names.SERVICE_ACCOUNT_RUN, names.SYSTEM_NAMESPACE, tenant)


def upkeep_binding(tenant: str) -> Manifest:
    """What ``clean_up`` may in a tenant's namespace."""
    return _binding(names.SERVICE_ACCOUNT_UPKEEP, names.SERVICE_ACCOUNT_UPKEEP, names.PLATFORM_NAMESPACE, tenant)


ROLES: Final = (names.SERVICE_ACCOUNT_RUN, names.SERVICE_ACCOUNT_UPKEEP, names.ROLE_SYNC_TENANT)
"""ClusterRoles that the bindings name."""


def platform_objects(*, host_network: bool = False) -> list[Manifest]:
    """The platform's own namespace. Its identities are the administrator's to give: ``deploy/rbac``."""
    return [namespace(names.PLATFORM_NAMESPACE, host_network=host_network)]


def tenant_objects(tenant: Tenant, cluster: ClusterProfile, *, closed: bool = False) -> list[Manifest]:
    """All of a tenant but what comes from S3 and from the site, in an order in which each can be made.

    ``closed``: its quota is 0 (:func:`resource_quota`).
    """
    counts_scratch = cluster.counts_scratch
    here = names.namespace(tenant.name)
    return [
        namespace(here, tenant.name, host_network=cluster.pods.host_network),
        sync_binding(tenant.name),
        resource_quota(tenant, counts_scratch=counts_scratch, gpu_resource=cluster.gpu_resource, closed=closed),
        limit_range(tenant, counts_scratch=counts_scratch),
        service_account(names.SERVICE_ACCOUNT, here, tenant.name),
        run_binding(tenant.name),
        upkeep_binding(tenant.name),
    ]
