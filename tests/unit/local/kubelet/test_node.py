from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from local.kubelet import node as node_module
from local.kubelet.api import ApiError
from local.kubelet.node import LEASES, Capacity, Node
from tests.unit.local.kubelet.conftest import FakeApi

STATUS, LEASE = ("PATCH", "/api/v1/nodes/n/status"), ("PATCH", f"{LEASES}/n")


@pytest.fixture
def returned() -> list[bool]:
    return []


@pytest.fixture
def node(api: FakeApi, tmp_path: Path, returned: list[bool]) -> Node:
    return Node(api, "n", 10250, Capacity(8, 4 << 30), tmp_path, "v1.34.4", lambda: returned.append(True))  # type: ignore[arg-type]


def test_capacity_is_the_machines_memory_and_four_cpus_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module.os, "cpu_count", lambda: 3)
    assert Capacity.of_this_machine() == Capacity(12, psutil.virtual_memory().total, 200)
    assert Capacity.of_this_machine(5, 1 << 20) == Capacity(5, 1 << 20, 200)


def test_the_status_says_where_and_how_large(node: Node) -> None:
    status = node.status()
    assert status["allocatable"] == status["capacity"]
    assert status["capacity"]["cpu"] == "8"
    assert status["capacity"]["memory"] == f"{4 << 20}Ki"
    assert status["capacity"]["pods"] == "200"
    assert int(status["capacity"]["ephemeral-storage"].removesuffix("Ki")) > 0
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert {"type": "InternalIP", "address": "127.0.0.1"} in status["addresses"]
    assert [item["status"] for item in status["conditions"] if item["type"] == "Ready"] == ["True"]


def test_a_node_that_exists_already_is_taken_over(api: FakeApi, node: Node) -> None:
    api.answers["POST", "/api/v1/nodes"] = ApiError(409, "exists")
    node.register()


def test_a_lease_that_is_not_there_is_made_and_owned_by_the_node(api: FakeApi, node: Node) -> None:
    api.answers[LEASE] = ApiError(404, "none")
    api.answers["GET", "/api/v1/nodes/n"] = {"metadata": {"uid": "node-uid"}}
    node.renew()
    method, path, body = api.asked[-1]
    assert (method, path) == ("POST", LEASES)
    assert body is not None
    assert body["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    assert body["spec"]["holderIdentity"] == "n"


class Rounds:
    """A stop event that lets the loop go round a number of times; `between` acts before each new round."""

    def __init__(self, rounds: int, between: Any = None) -> None:
        self.left, self.between = rounds, between or (lambda number: None)
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return self.left == 0

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.left -= 1
        self.between(len(self.waits))
        return self.is_set()


def test_the_lease_is_renewed_every_round_and_the_status_rarely(api: FakeApi, node: Node) -> None:
    rounds = Rounds(5)
    node.keep(rounds)  # type: ignore[arg-type]
    asked = [(method, path) for method, path, _ in api.asked]
    assert (asked.count(LEASE), asked.count(STATUS), asked.count(("POST", "/api/v1/nodes"))) == (5, 1, 1)
    assert rounds.waits == [10.0] * 5


def test_a_deleted_node_comes_back(api: FakeApi, node: Node) -> None:
    def between(number: int) -> None:
        if number == 1:
            api.answers[LEASE] = ApiError(404, "none")  # and so is the node itself: its owner reference cannot be read
        if number == 2:
            del api.answers[LEASE]

    node.keep(Rounds(3, between))  # type: ignore[arg-type]
    asked = [(method, path) for method, path, _ in api.asked]
    assert (asked.count(("POST", "/api/v1/nodes")), asked.count(STATUS)) == (2, 2)


def test_after_a_long_absence_the_pods_are_told_again(
    api: FakeApi, node: Node, returned: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(node_module, "wall_clock", lambda: now[0])

    def keep(*steps: float) -> None:
        def between(number: int) -> None:
            now[0] += steps[number - 1]

        node.keep(Rounds(len(steps), between))  # type: ignore[arg-type]

    keep(10, 10, 39)
    assert returned == []
    keep(10, 60, 10, 10)
    assert returned == [True]


def test_it_ends_when_told_to(node: Node) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=node.keep, args=(stop,))
    thread.start()
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
