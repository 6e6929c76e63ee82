"""What the cluster holds of one tenant: its quota as the API server counts it, and the pods of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from kubernetes import client as k8s
from kubernetes.utils.quantity import parse_quantity

from trainyard.contract import names
from trainyard.errors import RefusedError
from trainyard.kube.client import ask
from trainyard.kube.patience import Patience

ANSWER_WITHIN_S = 5.0
"""People look at it: a cluster that does not answer is said to be so, soon."""


@dataclass(frozen=True)
class Usage:
    """One namespace at one moment."""

    hard: Mapping[str, str]
    """The quota's limits, by resource; empty where there is none."""
    used: Mapping[str, str]
    pods: Mapping[str, int]
    """Short name of a run → pods of it."""


def usage(api: k8s.ApiClient, tenant: str, quota: str) -> Usage:
    """The tenant's namespace.

    Args:
        api: a client that may list quotas and pods there.
        tenant: whose namespace.
        quota: name of the ResourceQuota that counts.

    Raises:
        RefusedError: it may not be read.
        UnavailableError: the API server does not answer.
    """
    core, namespace = k8s.CoreV1Api(api), names.namespace(tenant)
    try:
        quotas = ask(core.list_namespaced_resource_quota, namespace, patience=Patience(seconds=ANSWER_WITHIN_S)).items
        pods = ask(core.list_namespaced_pod, namespace, label_selector=names.LABEL_RUN, patience=Patience(seconds=ANSWER_WITHIN_S)).items
    except k8s.ApiException as error:
        raise RefusedError(f"namespace {namespace} cannot be read: {error.status} {error.reason}") from error
    found = next((one for one in quotas if one.metadata.name == quota), None)
    status = found.status if found is not None else None
    return Usage(
        hard=dict((found.spec.hard if found is not None else None) or {}),
        used=dict((status.used if status else None) or {}),
        pods=Counter(pod.metadata.labels[names.LABEL_RUN] for pod in pods),
    )


def slots_used(used: Mapping[str, str], slot_cpu: str) -> Decimal:
    """How many slots' worth of CPU the quota counts: pods that are Pending, Running or still ending."""
    return parse_quantity(used.get("limits.cpu", "0")) / parse_quantity(slot_cpu)
