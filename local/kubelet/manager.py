"""All pods of this node: turns what the watch tells into pods, has them moved on by a few threads, and finds them for the log server."""

import logging
import threading
from pathlib import Path

from local.kubelet.api import Json
from local.kubelet.pod import Pod, Reporter, remove_folder
from local.kubelet.start import Starter
from local.kubelet.volumes import Volumes
from local.kubelet.workqueue import WorkQueue

log = logging.getLogger(__name__)

THREADS = 8
"""Starting a pod waits for the API (secrets, tokens), so a few start side by side."""


class PodManager:
    """The pods by uid."""

    def __init__(self, pods: Path, starter: Starter, reporter: Reporter) -> None:
        """`pods` is the folder that holds one folder a pod."""
        self._folder = pods
        self._starter = starter
        self._reporter = reporter
        self._pods: dict[str, Pod] = {}
        self._lock = threading.Lock()
        self._queue = WorkQueue("pods", self._sync, THREADS)
        self.start, self.stop, self.changed = self._queue.start, self._queue.stop, self._queue.add

    def listed(self, documents: list[Json]) -> None:
        """Take the whole list: new pods, changed ones, and those that vanished while nobody watched."""
        uids = {document["metadata"]["uid"] for document in documents}
        for document in documents:
            self._take(document)
        with self._lock:
            vanished = [pod for uid, pod in self._pods.items() if uid not in uids]
            known = set(self._pods)
        for pod in vanished:
            pod.remove()
            self.changed(pod.uid)
        for folder in self._folder.iterdir():
            if folder.name not in known:
                log.info("removing the folder of a pod that is gone: %s", folder.name)
                remove_folder(folder)

    def told(self, kind: str, document: Json) -> None:
        """Take one event of the watch."""
        if kind != "DELETED":
            self._take(document)
            return
        with self._lock:
            pod = self._pods.get(document["metadata"]["uid"])
        if pod is not None:
            pod.remove(document)
            self.changed(pod.uid)

    def _take(self, document: Json) -> None:
        """Take over one object. One that breaks something here must not keep the others from being seen."""
        try:
            self._take_over(document)
        except Exception:
            log.exception("pod %s is passed over", document.get("metadata", {}).get("name"))

    def _take_over(self, document: Json) -> None:
        uid = document["metadata"]["uid"]
        with self._lock:
            pod = self._pods.get(uid)
        if pod is not None:
            if pod.update(document):
                self.changed(uid)
            return
        folder = self._folder / uid
        volumes = Volumes(document, folder / "volumes", self._starter.sources(document), self._starter.capacity)
        pod = Pod(document, folder, self._starter, self._reporter, volumes)
        pod.recover()
        with self._lock:
            self._pods[uid] = pod
        self.changed(uid)

    def find(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name; the newest where an older one is still ending."""
        with self._lock:
            found = [pod for pod in self._pods.values() if pod.is_named(namespace, name)]
        # The sort keeps the order in which pods of one second came.
        found.sort(key=lambda pod: (not pod.removed, str(pod.document["metadata"].get("creationTimestamp"))))
        return found[-1] if found else None

    def tell_all_again(self) -> None:
        """Write every pod's status anew: the cluster has changed them while this node was away."""
        with self._lock:
            pods = list(self._pods.values())
        for pod in pods:
            pod.tell_again()
            self.changed(pod.uid)

    def _sync(self, uid: str) -> float | None:
        with self._lock:
            pod = self._pods.get(uid)
        if pod is None:
            return None
        again = pod.sync()
        if pod.gone:
            with self._lock:
                self._pods.pop(uid, None)
        return again
