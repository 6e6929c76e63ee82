from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from local.kubelet import watch
from local.kubelet.api import ApiError, Json
from local.kubelet.watch import PodWatch


def pod(name: str, version: str) -> Json:
    return {"metadata": {"name": name, "resourceVersion": version}}


class Server:
    """A script of answers: one list of pods, and what each watch request brings (an error ends it)."""

    def __init__(self, lists: list[Any], watches: list[list[Any]]) -> None:
        self.lists, self.watches = lists, watches
        self.versions: list[str] = []
        self.listings = 0
        self.done = threading.Event()

    def get(self, path: str, **query: str) -> Json:
        assert (path, query) == ("/api/v1/pods", {"fieldSelector": "spec.nodeName=local"})
        self.listings += 1
        answer = self.lists.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def watch(self, path: str, query: dict[str, str], read_s: float) -> Iterator[Json]:
        assert read_s > float(query["timeoutSeconds"]), "the server ends the request first"
        self.versions.append(query["resourceVersion"])
        if not self.watches:
            self.done.set()
            return
        for item in self.watches.pop(0):
            if isinstance(item, ApiError):
                raise item
            yield item


def listing(version: str, *pods: Json) -> Json:
    return {"metadata": {"resourceVersion": version}, "items": list(pods)}


def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    monkeypatch.setattr(watch, "BACKOFF_S", (0.0,))
    told: list[tuple[str, Any]] = []
    watcher = PodWatch(
        server,
        "local",
        lambda pods: told.append(("LIST", [item["metadata"]["name"] for item in pods])),
        lambda kind, item: told.append((kind, item["metadata"]["name"])),
    )
    stop = threading.Event()
    thread = threading.Thread(target=watcher.run, args=(stop,))
    thread.start()
    assert server.done.wait(10)
    stop.set()
    thread.join(10)
    return told


def test_events_after_a_list_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(
        [listing("5", pod("a", "3"))], [[{"type": "ADDED", "object": pod("b", "6")}, {"type": "DELETED", "object": pod("a", "7")}]]
    )
    assert run(server, monkeypatch) == [("LIST", ["a"]), ("ADDED", "b"), ("DELETED", "a")]
    assert server.versions[:2] == ["5", "7"], "the next request goes on after the last event"


def test_a_broken_connection_is_resumed_without_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(
        [listing("5")],
        [[{"type": "ADDED", "object": pod("b", "6")}, ApiError(0, "reset")], [{"type": "MODIFIED", "object": pod("b", "8")}]],
    )
    assert run(server, monkeypatch) == [("LIST", []), ("ADDED", "b"), ("MODIFIED", "b")]
    assert (server.listings, server.versions[:3]) == (1, ["5", "6", "8"])


def test_bookmarks_move_the_version_and_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([listing("5")], [[{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}]])
    assert run(server, monkeypatch) == [("LIST", [])]
    assert server.versions[:2] == ["5", "99"]


@pytest.mark.parametrize("gone", [ApiError(410, "too old"), {"type": "ERROR", "object": {"code": 410, "message": "too old"}}])
def test_410_lists_anew(gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([listing("5", pod("a", "1")), listing("50", pod("c", "40"))], [[gone]])
    assert run(server, monkeypatch) == [("LIST", ["a"]), ("LIST", ["c"])]
    assert server.versions[:2] == ["5", "50"]


def test_an_error_event_that_is_not_410_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([listing("5")], [[{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}], []])
    assert run(server, monkeypatch) == [("LIST", [])]
    assert server.versions[:2] == ["5", "5"]


def test_a_listener_that_fails_gets_a_list_again() -> None:
    server = Server([listing("5"), listing("6", pod("b", "6"))], [[{"type": "ADDED", "object": pod("b", "6")}]])
    lists: list[int] = []

    def fails(kind: str, document: Json) -> None:
        raise KeyError("not foreseen")

    watcher = PodWatch(server, "local", lambda pods: lists.append(len(pods)), fails)
    with pytest.raises(KeyError):
        watcher.run(threading.Event())
    watcher.once()
    assert lists == [0, 1]


def test_a_server_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([ApiError(0, "refused"), ApiError(503, "starting"), listing("5", pod("a", "1"))], [])
    assert run(server, monkeypatch) == [("LIST", ["a"])]
