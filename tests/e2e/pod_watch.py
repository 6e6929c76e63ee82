"""Every change of a namespace's pods, as the API server tells it in order: what held at any moment, not what a poll happened to see."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from trainyard.contract import names
from trainyard.settings.quantities import cpu_millis

OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Pod:
    """One pod that holds room in the quota: it is there, and its containers have not all ended."""

    name: str
    run: str
    role: str | None
    """Of a gang's replica."""
    slots: float
    running: bool


@dataclass(frozen=True)
class Moment:
    """What was there between one change and the next."""

    at: float
    pods: frozenset[Pod]

    @property
    def slots(self) -> float:
        return sum(pod.slots for pod in self.pods)

    @property
    def gangs(self) -> set[str]:
        """Runs of which any replica is there."""
        return {pod.run for pod in self.pods if pod.role}

    def replicas(self, run: str, *, running: bool = False) -> int:
        return sum(pod.run == run and pod.role is not None and (pod.running or not running) for pod in self.pods)


@dataclass
class PodWatch:
    """Watches one namespace from entry to exit; a watch that broke off fails the test, since what it missed is not known."""

    core: client.CoreV1Api
    namespace: str
    slot_cpu: str
    moments: list[Moment] = field(default_factory=list)
    problem: BaseException | None = None

    def __enter__(self) -> Self:
        listed = self.core.list_namespaced_pod(self.namespace)
        self._pods = {pod.metadata.uid: found for pod in listed.items if (found := self._view(pod))}
        self.moments = [Moment(time.monotonic(), frozenset(self._pods.values()))]
        self._watch = watch.Watch()
        self._done = False
        self._thread = threading.Thread(target=self._follow, args=(listed.metadata.resource_version,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done = True
        self._watch.stop()
        self._thread.join(15)
        if error is None:
            assert self.problem is None, f"the watch of {self.namespace} broke off: {self.problem}"

    def _follow(self, version: str) -> None:
        while not self._done:
            try:
                # Each ends after seconds and goes on from the last version: no change is passed over.
                for event in self._watch.stream(
                    self.core.list_namespaced_pod, self.namespace, resource_version=version, timeout_seconds=5, _request_timeout=30
                ):
                    self._take(event["type"], event["object"])
                    version = event["object"].metadata.resource_version
            except (client.ApiException, HTTPError, OSError) as error:
                if not self._done:
                    self.problem = error
                return

    def _take(self, kind: str, pod: Any) -> None:
        found = None if kind == "DELETED" else self._view(pod)
        if found is None:
            self._pods.pop(pod.metadata.uid, None)
        else:
            self._pods[pod.metadata.uid] = found
        self.moments.append(Moment(time.monotonic(), frozenset(self._pods.values())))

    def _view(self, pod: Any) -> Pod | None:
        if pod.status.phase in OVER:
            return None
        ours = pod.metadata.labels or {}
        millis = sum(cpu_millis(container.resources.limits["cpu"]) for container in pod.spec.containers)
        return Pod(
            name=pod.metadata.name,
            run=ours.get(names.LABEL_RUN, ""),
            role=ours.get(names.LABEL_ROLE),
            slots=millis / cpu_millis(self.slot_cpu),
            running=pod.status.phase == "Running",
        )
