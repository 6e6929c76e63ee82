"""Writes pods' statuses to the API, the newest of each, and removes the objects of pods that were deleted and have ended.

An API server that is away costs nothing but time: the newest status is kept and tried again. Every write names the pod's uid, so a pod
of the same name made later is never touched.
"""

import logging
import threading
from dataclasses import dataclass

from local.kubelet.api import STRATEGIC_MERGE_PATCH, Api, ApiError, Json
from local.kubelet.workqueue import WorkQueue

log = logging.getLogger(__name__)

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
THREADS = 4


@dataclass
class _Wanted:
    """What is still to be said of one pod."""

    namespace: str
    name: str
    status: Json | None = None
    delete: bool = False
    failures: int = 0


class StatusWriter:
    """Statuses and final deletions of all pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._wanted: dict[str, _Wanted] = {}
        self._lock = threading.Lock()
        self._queue = WorkQueue("status", self._write, THREADS)
        self.start, self.stop = self._queue.start, self._queue.stop

    def status(self, pod: Json, status: Json) -> None:
        """Have the status written."""
        with self._lock:
            self._of(pod).status = status
        self._queue.add(pod["metadata"]["uid"])

    def delete(self, pod: Json) -> None:
        """Have the object removed, after its last status."""
        with self._lock:
            self._of(pod).delete = True
        self._queue.add(pod["metadata"]["uid"])

    def _of(self, pod: Json) -> _Wanted:
        metadata = pod["metadata"]
        return self._wanted.setdefault(metadata["uid"], _Wanted(metadata["namespace"], metadata["name"]))

    def _write(self, uid: str) -> float | None:
        """Say what is to be said of one pod; seconds until the next try where that fails."""
        with self._lock:
            wanted = self._wanted.get(uid)
            if wanted is None:
                return None
            status, delete = wanted.status, wanted.delete
        path = f"/api/v1/namespaces/{wanted.namespace}/pods/{wanted.name}"
        try:
            if status is not None:
                body = {"metadata": {"uid": uid}, "status": status}
                self._api.request("PATCH", f"{path}/status", body=body, content_type=STRATEGIC_MERGE_PATCH)
            if delete:
                self._api.request("DELETE", path, body={"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        except ApiError as problem:
            # 404: the pod is gone; 409: its name belongs to another pod now. Either way there is nobody to tell.
            if problem.status not in (404, 409):
                wait = BACKOFF_S[min(wanted.failures, len(BACKOFF_S) - 1)]
                if wanted.failures == 0:
                    log.warning("pod %s/%s: the status cannot be written: %s; trying again", wanted.namespace, wanted.name, problem)
                wanted.failures += 1
                return wait
        with self._lock:
            wanted.failures = 0
            if wanted.status is status:
                wanted.status = None
            if wanted.delete == delete:
                wanted.delete = False
            if wanted.status is None and not wanted.delete:
                self._wanted.pop(uid, None)
                return None
        return 0.0
