"""List and watch of the pods bound to this node: every change once, in order, through every loss of the connection.

Protocol: kubernetes.io/docs/reference/using-api/api-concepts "Efficient detection of changes". A watch goes on from the last
resourceVersion seen (bookmarks keep it fresh); 410 Gone means that version is forgotten, so the pods are listed anew.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from local.kubelet.api import ApiError, Json

log = logging.getLogger(__name__)

WATCH_S = 240
"""How long one watch request stays open; the server ends it then, and it is resumed."""
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Waits between tries while the API server does not answer."""


class WatchApi(Protocol):
    """The part of api.Api that is used here."""

    def get(self, path: str, **query: str) -> Json:
        """One GET."""

    def watch(self, path: str, query: dict[str, str], read_s: float) -> Iterator[Json]:
        """The events of one watch."""


class _Expired(Exception):
    """410: the resource version is older than what the server still knows."""


class PodWatch:
    """Tells a listener the pods of one node: `listed` with all of them, then `changed` for each event."""

    def __init__(self, api: WatchApi, node: str, listed: Callable[[list[Json]], None], changed: Callable[[str, Json], None]) -> None:
        self._api = api
        self._selector = f"spec.nodeName={node}"
        self._listed = listed
        self._changed = changed
        self._version: str | None = None
        self._failures = 0

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set."""
        while not stop.is_set():
            try:
                self.once()
                self._failures = 0
            except _Expired:
                log.info("the API server has forgotten resource version %s: listing the pods anew", self._version)
                self._version = None
            except ApiError as problem:
                wait = BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
                if self._failures == 0:
                    log.warning("pods cannot be watched: %s; trying again", problem)
                self._failures += 1
                stop.wait(wait)
            except Exception:
                self._version = None  # what was told may be half taken: begin with a list
                raise

    def once(self) -> None:
        """List if that is needed, then follow one watch request to its end. Raises ApiError."""
        if self._version is None:
            pods = self._api.get("/api/v1/pods", fieldSelector=self._selector)
            self._listed(pods["items"])
            self._version = pods["metadata"]["resourceVersion"]
        query = {
            "fieldSelector": self._selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            for event in self._api.watch("/api/v1/pods", query, WATCH_S + 30.0):
                self._take(event)
        except ApiError as problem:
            if problem.status == 410:
                raise _Expired from problem
            raise

    def _take(self, event: Json) -> None:
        kind, document = event["type"], event["object"]
        if kind == "ERROR":
            if document.get("code") == 410:
                raise _Expired
            raise ApiError(int(document.get("code", 0)), str(document.get("message", document)))
        self._failures = 0
        if kind != "BOOKMARK":
            self._changed(kind, document)
        # After the listener: where it fails, the event is told again.
        self._version = document["metadata"]["resourceVersion"]
