"""What the cluster holds that bears our labels: the roots of each run's objects, from which the rest hangs."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import UnavailableError
from trainyard.kube import labels
from trainyard.kube.client import ask


@dataclass(frozen=True)
class Root:
    """A Job, or a pod that no Job owns."""

    kind: str
    """``Job`` or ``pod``."""
    name: str
    uid: str
    tenant: str
    """Whose namespace it is in: that is what counts, not its label."""
    created: datetime.datetime
    instance: str | None
    run: str | None
    dag_id: str | None
    run_id: str | None
    """Airflow's ids, from the annotations; None where there are none."""


def _root(kind: str, thing: Any, tenant: str) -> Root:
    meta = thing.metadata
    ours, notes = meta.labels or {}, meta.annotations or {}
    return Root(
        kind=kind,
        name=meta.name,
        uid=meta.uid,
        tenant=tenant,
        created=meta.creation_timestamp,
        instance=ours.get(names.LABEL_INSTANCE),
        run=ours.get(names.LABEL_RUN),
        dag_id=notes.get(names.ANNOTATION_DAG_ID),
        run_id=notes.get(names.ANNOTATION_RUN_ID),
    )


def roots(api: k8s.ApiClient, tenant: str, selector: str | None = None) -> list[Root]:
    """All there are in the tenant's namespace that match ``selector``; without one, whatever Trainyard made.

    Raises:
        UnavailableError: the API server does not answer, or not in full.
    """
    selector = selector or labels.selector({names.LABEL_MANAGED_BY: names.MANAGED_BY})
    namespace = names.namespace(tenant)
    jobs = _all(ask(k8s.BatchV1Api(api).list_namespaced_job, namespace, label_selector=selector))
    pods = _all(ask(k8s.CoreV1Api(api).list_namespaced_pod, namespace, label_selector=selector))
    lone = [pod for pod in pods if not pod.metadata.owner_references]
    return [_root("Job", job, tenant) for job in jobs] + [_root("pod", pod, tenant) for pod in lone]


def _all(answer: Any) -> list[Any]:
    if answer.metadata is not None and answer.metadata._continue:
        raise UnavailableError("the Kubernetes API server gave a part of a list only")
    return list(answer.items)
