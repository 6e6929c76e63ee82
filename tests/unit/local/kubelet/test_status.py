from __future__ import annotations

from typing import Any

import pytest

from local.kubelet.api import Json
from local.kubelet.status import ContainerState, Verdict, phase, pod_status

RUNNING: Json = {"running": {"startedAt": "t"}}
WAITING: Json = {"waiting": {"reason": "ContainerCreating"}}


def ended(code: int) -> Json:
    return {"terminated": {"exitCode": code}}


def make(state: Json, name: str = "main", init: bool = False) -> ContainerState:
    return ContainerState(name, "image", init, state)


@pytest.mark.parametrize(
    ("states", "over", "expected"),
    [
        ([make(WAITING)], False, "Pending"),
        ([make(RUNNING)], False, "Running"),
        ([make(RUNNING), make(WAITING, "b")], False, "Pending"),
        ([make(RUNNING), make(ended(1), "b")], False, "Running"),
        ([make(RUNNING, "i", init=True), make(WAITING)], False, "Pending"),
        ([make(ended(0), "i", init=True), make(RUNNING)], False, "Running"),
        ([make(ended(0))], True, "Succeeded"),
        ([make(ended(0)), make(ended(3), "b")], True, "Failed"),
        ([make(ended(1), "i", init=True), make(WAITING)], True, "Failed"),
        ([make(WAITING)], True, "Failed"),
    ],
)
def test_phases(states: list[ContainerState], over: bool, expected: str) -> None:
    assert phase(states, Verdict(), over) == expected


def test_a_verdict_decides_only_once_everything_has_ended() -> None:
    verdict = Verdict("Failed", "DeadlineExceeded", "too long")
    assert phase([make(RUNNING)], verdict, ended=False) == "Running"
    assert phase([make(ended(0))], verdict, ended=True) == "Failed"


def status(states: list[ContainerState], over: bool = False, previous: Json | None = None, now: str = "now", **more: Any) -> Json:
    return pod_status(states, more.get("verdict", Verdict()), over, "start", previous or {}, now, prepared=True)


def conditions(document: Json) -> dict[str, tuple[str, str | None]]:
    return {item["type"]: (item["status"], item["reason"]) for item in document["conditions"]}


@pytest.mark.parametrize(
    ("states", "over", "ready", "initialized"),
    [
        ([make(RUNNING)], False, ("True", None), ("True", None)),
        ([make(WAITING)], False, ("False", "ContainersNotReady"), ("True", None)),
        ([make(RUNNING, "i", init=True), make(WAITING)], False, ("False", "ContainersNotReady"), ("False", "ContainersNotInitialized")),
        ([make(ended(0))], True, ("False", "PodCompleted"), ("True", "PodCompleted")),
        ([make(ended(2))], True, ("False", "PodFailed"), ("True", None)),
    ],
)
def test_conditions(states: list[ContainerState], over: bool, ready: tuple[str, str | None], initialized: tuple[str, str | None]) -> None:
    found = conditions(status(states, over))
    assert found["Ready"] == ready
    assert found["ContainersReady"] == ready
    assert found["Initialized"] == initialized


def test_a_condition_that_stays_keeps_its_time() -> None:
    first = status([make(WAITING)], now="t1")
    second = status([make(RUNNING)], previous=first, now="t2")
    third = status([make(RUNNING)], previous=second, now="t3")
    times = {item["type"]: item["lastTransitionTime"] for item in third["conditions"]}
    assert times == {"PodReadyToStartContainers": "t1", "Initialized": "t1", "Ready": "t2", "ContainersReady": "t2"}
    assert third == second, "so nothing is written when nothing changed"


def test_a_reason_that_no_longer_holds_is_taken_back() -> None:
    """The patch is a merge: what it does not name would stay."""
    ready = next(item for item in status([make(RUNNING)])["conditions"] if item["type"] == "Ready")
    assert ready["reason"] is None
    assert ready["message"] is None


def test_containers() -> None:
    found = status([make(ended(0), "i", init=True), make(RUNNING)])
    assert [(item["name"], item["ready"], item["started"]) for item in found["containerStatuses"]] == [("main", True, True)]
    assert [(item["name"], item["ready"], item["restartCount"]) for item in found["initContainerStatuses"]] == [("i", True, 0)]


def test_verdicts_are_shown_with_their_conditions() -> None:
    verdict = Verdict("Failed", "Evicted", "too big", [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}])
    found = status([make(ended(137))], over=True, verdict=verdict)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "Evicted", "too big")
    assert conditions(found)["DisruptionTarget"] == ("True", "TerminationByKubelet")
