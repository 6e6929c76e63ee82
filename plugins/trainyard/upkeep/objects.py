"""Kubernetes objects of a tenant and of the platform, as plain manifests. Pure: what is sent is decided here, how in :mod:`applying`.

A tenant's one number becomes a ResourceQuota of slots × slot. It counts pods that are Pending, Running and Terminating, so a step
whose pods are still ending holds its share: the next one waits, it does not fail.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from trainyard.contract import names
from trainyard.settings import Tenant
from trainyard.settings.quantities import times_cpu, times_memory

QUOTA: Final = "tenant"
LIMITS: Final = "tenant"
_RBAC: Final = "rbac.authorization.k8s.io"
_POD_SECURITY: Final = {
    f"pod-security.kubernetes.io/{mode}{suffix}": value
    for mode in ("enforce", "warn", "audit")
    for suffix, value in (("", "restricted"), ("-version", "latest"))
}

Manifest = dict[str, Any]


def _metadata(name: str, namespace: str | None = None, tenant: str | None = None, **labels: str) -> Manifest:
    found: Manifest = {"name": name, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, **labels}}
    if tenant is not None:
        found["labels"][names.LABEL_TENANT] = tenant
    if namespace is not None:
        found["namespace"] = namespace
    return found


def namespace(name: str, tenant: str | None = None) -> Manifest:
    """A namespace in which only restricted pods are admitted (Pod Security Standards)."""
    metadata = _metadata(name, tenant=tenant)
    metadata["labels"] |= _POD_SECURITY
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def service_account(name: str, namespace: str, tenant: str | None = None) -> Manifest:
    """An identity whose token no pod gets unless it mounts one by name."""
    metadata = _metadata(name, namespace, tenant)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}


def resource_quota(tenant: Tenant, *, counts_scratch: bool = True) -> Manifest:
    """slots × slot, at most one pod a slot, and nothing that costs outside the slots: no volumes, no load balancers."""
    slots, slot = tenant.slots, tenant.slot
    amounts = {
        "cpu": times_cpu(slot.cpu, slots),
        "memory": times_memory(slot.memory, slots),
    }
    if counts_scratch:
        amounts["ephemeral-storage"] = times_memory(slot.scratch, slots)
    hard = {f"{side}.{resource}": amount for side in ("requests", "limits") for resource, amount in amounts.items()}
    hard |= {"pods": str(slots), "persistentvolumeclaims": "0", "services.nodeports": "0", "services.loadbalancers": "0"}
    metadata = _metadata(QUOTA, names.namespace(tenant.name), tenant.name)
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}


def limit_range(tenant: Tenant, *, counts_scratch: bool = True) -> Manifest:
    """A container that says nothing is worth one slot; none may be more than all slots."""
    slots, slot = tenant.slots, tenant.slot
    one = {"cpu": slot.cpu, "memory": slot.memory}
    most = {"cpu": times_cpu(slot.cpu, slots), "memory": times_memory(slot.memory, slots)}
    if counts_scratch:
        one["ephemeral-storage"] = slot.scratch
        most["ephemeral-storage"] = times_memory(slot.scratch, slots)
    limits = [{"type": "Container", "default": one, "defaultRequest": one, "max": most}]
    metadata = _metadata(LIMITS, names.namespace(tenant.name), tenant.name)
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def secret(name: str, namespace: str, values: Mapping[str, str], tenant: str | None = None) -> Manifest:
    """Values as a Secret of opaque type."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": _metadata(name, namespace, tenant), "data": data}


def upkeep_role() -> Manifest:
    """What ``clean_up`` may do in a tenant's namespace."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "list", "delete"]},
    ]
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": _metadata(names.SERVICE_ACCOUNT_UPKEEP), "rules": rules}


def upkeep_binding(tenant: str) -> Manifest:
    """Gives the platform's upkeep identity that role, in this tenant's namespace only."""
    subject = {"kind": "ServiceAccount", "name": names.SERVICE_ACCOUNT_UPKEEP, "namespace": names.PLATFORM_NAMESPACE}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(names.SERVICE_ACCOUNT_UPKEEP, names.namespace(tenant), tenant),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": names.SERVICE_ACCOUNT_UPKEEP},
        "subjects": [subject],
    }


def platform_objects() -> list[Manifest]:
    """The platform's own namespace and identity."""
    return [
        namespace(names.PLATFORM_NAMESPACE),
        service_account(names.SERVICE_ACCOUNT_UPKEEP, names.PLATFORM_NAMESPACE),
        upkeep_role(),
    ]


def tenant_objects(tenant: Tenant, *, counts_scratch: bool = True) -> list[Manifest]:
    """All of a tenant but its Secrets, in an order in which each can be made."""
    here = names.namespace(tenant.name)
    return [
        namespace(here, tenant.name),
        resource_quota(tenant, counts_scratch=counts_scratch),
        limit_range(tenant, counts_scratch=counts_scratch),
        service_account(names.SERVICE_ACCOUNT, here, tenant.name),
        upkeep_binding(tenant.name),
    ]
