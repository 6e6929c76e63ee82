"""The live logs of a gang: one thread follows each pod, one queue brings the lines together.

This is the live view only. Kubernetes keeps the last 10 MiB of a log and loses them with the node: the whole log is what the
supervisors ship to S3.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final

from kubernetes import client as k8s
from urllib3.exceptions import HTTPError

from trainyard.kube.client import TIMEOUT
from trainyard.kube.gang_state import PodView
from trainyard.kube.pod import CONTAINER

QUEUE_LINES: Final = 10_000
"""Lines that wait to be shown; a replica that prints more is read more slowly, never held in memory."""
SILENCE_S: Final = 60.0
"""After so long without a line the connection is made anew: a dead one looks just like a silent one."""
TAIL_LINES: Final = 50
"""Lines of the past shown of a pod that already ran when we came (adoption)."""


class Follower(threading.Thread):
    """Follows one pod's container until it has ended; each line once, also across lost connections."""

    def __init__(self, core: k8s.CoreV1Api, namespace: str, pod: PodView, lines: queue.Queue[str], *, tail: bool) -> None:
        super().__init__(name=f"log-{pod.name}", daemon=True)
        self._core, self._namespace, self._pod, self._lines, self._tail = core, namespace, pod, lines, tail
        self._last = ""  # timestamp of the last line: RFC 3339 with nanoseconds, of one clock, so it sorts as text
        self._last_seen_at = 0.0
        self.stopping = threading.Event()
        self.over = threading.Event()
        """Set by the owner when the pod's container has ended: the next end of the stream is the log's end."""

    def run(self) -> None:
        while not self.stopping.is_set():
            final = self.over.is_set()
            finished = self._once()
            if finished and final:
                return
            # A stream that ended before the container did (API server restarted, silence): go on where it stopped.
            self.over.wait(0.3)

    def _once(self) -> bool:
        """Read until the stream ends; True when it ended well."""
        options: dict[str, object] = {}
        if self._last:
            options["since_seconds"] = int(time.monotonic() - self._last_seen_at) + 2
        elif self._tail:
            options["tail_lines"] = TAIL_LINES
        try:
            response = self._core.read_namespaced_pod_log(
                self._pod.name,
                self._namespace,
                container=CONTAINER,
                follow=True,
                timestamps=True,
                _preload_content=False,
                _request_timeout=(TIMEOUT[0], SILENCE_S),
                **options,
            )
        except (k8s.ApiException, HTTPError, OSError) as error:
            # 404: the pod object is gone, and with it the log; anything else may work in a moment.
            return isinstance(error, k8s.ApiException) and error.status == 404
        before = self._last
        try:
            for line in _split(response.stream(amt=None, decode_content=True)):
                self._show(line, before)
                if self.stopping.is_set():
                    return True
            return True
        except (HTTPError, OSError):
            return False
        finally:
            response.close()

    def _show(self, raw: bytes, before: str) -> None:
        text = raw.decode("utf-8", errors="backslashreplace")
        stamp, _, line = text.partition(" ")
        if stamp <= before:
            return  # shown before the connection was lost
        self._last, self._last_seen_at = stamp, time.monotonic()
        self._put(f"[{self._pod.replica}] {line}")

    def _put(self, line: str) -> None:
        while not self.stopping.is_set():
            try:
                self._lines.put(line, timeout=0.5)
                return
            except queue.Full:
                continue


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines without their end, whatever the chunks are; an unfinished last line is a line."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


class GangLogs:
    """The logs of all replicas of one generation, of their replacements too."""

    def __init__(self, core: k8s.CoreV1Api, namespace: str, *, adopted: bool) -> None:
        self._core, self._namespace = core, namespace
        self._lines: queue.Queue[str] = queue.Queue(maxsize=QUEUE_LINES)
        self._followers: dict[str, Follower] = {}
        self._adopted = adopted

    def observe(self, pods: Iterable[PodView]) -> None:
        """Follow every pod that has a log and is not yet followed; note which have ended."""
        present = set()
        for pod in pods:
            present.add(pod.uid)
            if pod.uid not in self._followers and pod.started:
                follower = Follower(self._core, self._namespace, pod, self._lines, tail=self._adopted)
                self._followers[pod.uid] = follower
                if pod.over:
                    follower.over.set()
                follower.start()
            elif pod.uid in self._followers and pod.over:
                self._followers[pod.uid].over.set()
        # What was there at the first look was adopted; a replacement is new and is shown from its first line.
        self._adopted = False
        for uid, follower in self._followers.items():
            if uid not in present:
                follower.over.set()

    def lines(self, seconds: float) -> Iterator[str]:
        """The lines that arrive within ``seconds``; waits that long, which makes it the pause of a loop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                yield self._lines.get(timeout=left)
            except queue.Empty:
                return

    def drain(self, seconds: float) -> Iterator[str]:
        """The lines that are left, until every ended pod's log has been read to its end, at most for ``seconds``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            reading = any(follower.is_alive() and follower.over.is_set() for follower in self._followers.values())
            try:
                yield self._lines.get(timeout=0.1)
            except queue.Empty:
                if not reading:
                    return

    def close(self) -> None:
        """Stop reading. The threads end at their next line or time-out; they are daemons."""
        for follower in self._followers.values():
            follower.stopping.set()
            follower.over.set()
