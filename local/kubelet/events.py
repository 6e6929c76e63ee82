"""Events about pods, for `kubectl describe` and Airflow's task log. Best effort, as everywhere: a lost event changes nothing."""

import logging
import queue
import threading
import time
import uuid

from local.kubelet.api import Api, ApiError, Json
from local.kubelet.shim import utc_seconds

log = logging.getLogger(__name__)

MAX_WAITING = 1000
MAX_MESSAGE = 1024
"""Characters; the API's limit."""


class EventRecorder:
    """Sends events from a thread of its own, so that nothing waits for them."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node
        self._waiting: queue.Queue[Json] = queue.Queue(MAX_WAITING)

    def start(self) -> None:
        """Start sending."""
        threading.Thread(target=self._send, name="events", daemon=True).start()

    def event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        """Record an event about a pod; dropped where a thousand wait already."""
        metadata = pod["metadata"]
        now = utc_seconds(time.time())
        document = {
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "source": {"component": "kubelet", "host": self._node},
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._waiting.put_nowait(document)
        except queue.Full:
            log.debug("event dropped: %s %s", reason, message)

    def _send(self) -> None:
        while True:
            document = self._waiting.get()
            try:
                self._api.request("POST", f"/api/v1/namespaces/{document['metadata']['namespace']}/events", body=document)
            except ApiError as problem:  # the namespace is ending, or the server is away
                log.debug("event not recorded: %s", problem)
