"""Taking a gang down, whatever is left of it: Jobs, Services, pods, and pods on nodes that no longer answer.

Every DELETE names its propagation policy: the default orphans a Job's pods (measured).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from kubernetes import client as k8s

from trainyard.errors import UnavailableError
from trainyard.kube import labels
from trainyard.kube.client import ask
from trainyard.kube.pod import GRACE_S

FORCE_AFTER_S: Final = GRACE_S + 10
"""A pod on a living node is gone after its grace period; one on a dead node never is."""
GIVE_UP_AFTER_S: Final = FORCE_AFTER_S + 30


def _quietly(call: Callable[..., object], *arguments: object, **options: Any) -> None:
    """Delete; what is gone already is as good."""
    try:
        ask(call, *arguments, **options)
    except k8s.ApiException as error:
        if error.status not in (404, 409):
            raise


def abandon_pod(core: k8s.CoreV1Api, name: str, namespace: str, why: str) -> None:
    """Declare a pod on a dead node failed, and remove it, so that its Job replaces it elsewhere.

    Removal by force alone is not enough (measured): the pod carries its Job's finalizer, and a Job with ``podReplacementPolicy: Failed``
    lets go of it only in a final phase, which nobody is left to write. Kubernetes' own pod garbage collector does just this for pods whose
    Node object is gone: phase Failed, with the condition that makes it nobody's failure.
    """
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "NodeLost", "message": why}
    body = {"status": {"phase": "Failed", "reason": "NodeLost", "message": why, "conditions": [condition]}}
    _quietly(core.patch_namespaced_pod_status, name, namespace, body)
    _quietly(core.delete_namespaced_pod, name, namespace, grace_period_seconds=0, propagation_policy="Background")


class Takedown:
    """Removes all objects of one run's gang that match a selector."""

    def __init__(self, api: k8s.ApiClient, namespace: str, log: Callable[[str], None]) -> None:
        self._core = k8s.CoreV1Api(api)
        self._batch = k8s.BatchV1Api(api)
        self._networking = k8s.NetworkingV1Api(api)
        self._namespace = namespace
        self._log = log

    def remove(self, run: str, generation: int | None = None, poll: Callable[[], None] = lambda: time.sleep(0.4)) -> float:
        """Delete the gang and wait until no pod of it is left; returns how many seconds that took.

        Pods that are still there after their grace period (a dead node) are removed by force: that gives the quota back; the
        process itself is then bounded by its generation, which it no longer holds.

        Raises:
            UnavailableError: pods are left at the end of the bound, named in the text.
        """
        return self.remove_matching(labels.gang_selector(run, generation), poll)

    def remove_matching(self, selector: str, poll: Callable[[], None] = lambda: time.sleep(0.4)) -> float:
        """As :meth:`remove`, for any selector of ours: ``clean_up`` takes down all of a run, its steps' pods included."""
        began = time.monotonic()
        self._delete(selector)
        forced: set[str] = set()
        while True:
            left = [pod.metadata.name for pod in ask(self._core.list_namespaced_pod, self._namespace, label_selector=selector).items]
            jobs = [job.metadata.name for job in ask(self._batch.list_namespaced_job, self._namespace, label_selector=selector).items]
            waited = time.monotonic() - began
            if not left and not jobs:
                return waited
            if waited > GIVE_UP_AFTER_S:
                raise UnavailableError(f"still in namespace {self._namespace} {waited:.0f} s after their removal: {', '.join(left + jobs)}")
            if waited > FORCE_AFTER_S:
                self._force(left, forced)
            poll()

    def _delete(self, selector: str) -> None:
        # Jobs one by one and not as a collection: that call needs a verb of its own, which our role does not have.
        for job in ask(self._batch.list_namespaced_job, self._namespace, label_selector=selector).items:
            _quietly(self._batch.delete_namespaced_job, job.metadata.name, self._namespace, propagation_policy="Foreground")
        for service in ask(self._core.list_namespaced_service, self._namespace, label_selector=selector).items:
            _quietly(self._core.delete_namespaced_service, service.metadata.name, self._namespace)
        for policy in ask(self._networking.list_namespaced_network_policy, self._namespace, label_selector=selector).items:
            _quietly(self._networking.delete_namespaced_network_policy, policy.metadata.name, self._namespace)
        # Pods without a Job: what an operator of an earlier release, or a person, may have orphaned.
        for pod in ask(self._core.list_namespaced_pod, self._namespace, label_selector=selector).items:
            if not pod.metadata.owner_references and pod.metadata.deletion_timestamp is None:
                _quietly(self._core.delete_namespaced_pod, pod.metadata.name, self._namespace)

    def _force(self, pods: Iterable[str], forced: set[str]) -> None:
        for name in pods:
            if name not in forced:
                self._log(f"pod {name} did not end in {FORCE_AFTER_S} s (is its node away?): removing it by force")
                forced.add(name)
            _quietly(self._core.delete_namespaced_pod, name, self._namespace, grace_period_seconds=0, propagation_policy="Background")
