"""Whether a namespace has room for a whole gang: Kubernetes' quota counts pods one by one, a gang must not begin with half of it.

Two refusals of the API server are told apart here as well: ``403 … exceeded quota`` (there is no room now) and ``409`` on the quota
object itself (many pods were created at the same time; the API server gave up counting). Neither says anything is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from kubernetes import client as k8s
from kubernetes.utils.quantity import parse_quantity

from trainyard.kube.client import ask

COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True)
class Shortage:
    """One resource of one quota that a gang does not fit in."""

    quota: str
    resource: str
    needed: Decimal
    used: Decimal
    hard: Decimal

    def __str__(self) -> str:
        return (
            f"quota {self.quota}: {self.resource} {display(self.resource, self.needed)} needed, "
            f"{display(self.resource, self.used)} of {display(self.resource, self.hard)} used"
        )

    @property
    def never(self) -> bool:
        """Whether it would not fit into the empty namespace either."""
        return self.needed > self.hard


def display(resource: str, amount: Decimal) -> str:
    """``amount`` for people: GiB for bytes, cores otherwise."""
    if "memory" in resource or "storage" in resource:
        return f"{amount / 2**30:.2f}Gi"
    return f"{amount.normalize():f}"


def demand(pods: Iterable[Mapping[str, str]]) -> dict[str, Decimal]:
    """What pods with these resources (requests = limits) count in a quota, by every name that a quota may give it."""
    total: dict[str, Decimal] = {"pods": Decimal(0), "count/pods": Decimal(0)}
    for resources in pods:
        total["pods"] += 1
        total["count/pods"] += 1
        for name, text in resources.items():
            # A quota counts requests only of what is no resource of every node (GPUs: domain/name).
            kinds = (name, f"requests.{name}", f"limits.{name}") if name in COMPUTE else (f"requests.{name}",)
            for counted in kinds:
                total[counted] = total.get(counted, Decimal(0)) + parse_quantity(text)
    return total


def shortages(quotas: Iterable[k8s.V1ResourceQuota], wanted: Mapping[str, Decimal]) -> list[Shortage]:
    """Every resource of the quotas that ``wanted`` does not fit in, beside what is used already."""
    found = []
    for quota in quotas:
        # A quota with scopes counts some pods only; whether it counts ours is for the API server to say at creation.
        if quota.spec.scopes or quota.spec.scope_selector:
            continue
        status = quota.status
        hard = (status.hard if status else None) or {}
        used = (status.used if status else None) or {}
        for resource, limit in hard.items():
            needed = wanted.get(resource)
            if not needed:
                continue
            taken, most = parse_quantity(used.get(resource, "0")), parse_quantity(limit)
            if taken + needed > most:
                found.append(Shortage(quota.metadata.name, resource, needed, taken, most))
    return found


def room_for(core: k8s.CoreV1Api, namespace: str, wanted: Mapping[str, Decimal]) -> list[Shortage]:
    """Ask the namespace's quotas; an empty list means there is room now.

    Raises:
        UnavailableError: the API server does not answer.
    """
    return shortages(ask(core.list_namespaced_resource_quota, namespace).items, wanted)


def _body(error: k8s.ApiException) -> dict[str, object]:
    try:
        found = json.loads(error.body or "{}")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def message_of(error: k8s.ApiException) -> str:
    """The API server's own words, without the HTTP around them."""
    return str(_body(error).get("message") or error.reason or f"HTTP {error.status}")


def is_quota_exceeded(error: k8s.ApiException) -> bool:
    """``403 … exceeded quota``: no room now."""
    return error.status == 403 and "exceeded quota" in message_of(error)


def is_quota_conflict(error: k8s.ApiException) -> bool:
    """``409`` on the ResourceQuota object: the same request works when the others are through."""
    if error.status != 409:
        return False
    details = _body(error).get("details")
    kind = details.get("kind", "") if isinstance(details, dict) else ""
    return "resourcequota" in str(kind).lower() or "resourcequotas" in message_of(error)


def is_already_exists(error: k8s.ApiException) -> bool:
    """``409 AlreadyExists``: an earlier request of the same name did succeed."""
    return error.status == 409 and not is_quota_conflict(error) and _body(error).get("reason") == "AlreadyExists"
