"""Creating a step's pod where there may be no room for it now: waiting for a quota is no failure, and spends no retry."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from airflow.sdk.exceptions import AirflowException
from kubernetes import client as k8s

from trainyard.errors import RefusedError
from trainyard.kube import quota
from trainyard.kube.client import ask
from trainyard.kube.patience import Patience

ROOM_S: Final = 6 * 3600.0
"""How long a pod waits for room in the quota."""
SAY_AGAIN_S: Final = 60.0


class PatientPodManager(PodManager):
    """The provider's pod manager, but for creation: it waits for room, and does not print the pod when it is refused."""

    def __init__(
        self,
        kube_client: k8s.CoreV1Api,
        check_stop: Callable[[], None],
        room_s: float = ROOM_S,
        sleep: Callable[[float], None] = time.sleep,
        **kwargs: Any,
    ) -> None:
        super().__init__(kube_client=kube_client, **kwargs)
        self._check_stop = check_stop
        self._room_s = room_s
        self._sleep = sleep

    def create_pod(self, pod: k8s.V1Pod) -> k8s.V1Pod:
        """Create the pod.

        Raises:
            AirflowException: there was no room for it within the bound, in the quota's own words.
            RefusedError: the API server refuses it for good (Pod Security, a missing namespace, …).
            UnavailableError: the API server does not answer.
        """
        began, said_at = time.monotonic(), 0.0
        busy, room = Patience(seconds=300, sleep=self._sleep), Patience(self._room_s, first=1.0, most=10.0, sleep=self._sleep)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        while True:
            self._check_stop()
            try:
                return ask(self._client.create_namespaced_pod, namespace, self._client.api_client.sanitize_for_serialization(pod))
            except k8s.ApiException as error:
                if quota.is_already_exists(error):
                    # The name ends in eight random characters: this is our own request, whose answer was lost.
                    return ask(self._client.read_namespaced_pod, name, namespace)
                words = quota.message_of(error)
                if quota.is_quota_conflict(error) and busy.wait():
                    continue
                if not quota.is_quota_exceeded(error):
                    raise RefusedError(f"namespace {namespace} refuses the pod: {words}") from error
                if not room.wait():
                    raise AirflowException(f"no room for the pod in {self._room_s:.0f} s: {words}") from error
                if time.monotonic() - said_at > SAY_AGAIN_S:
                    said_at = time.monotonic()
                    self.log.info("waiting for room in the quota (%.0f s so far): %s", said_at - began, words)
