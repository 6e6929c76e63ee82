from __future__ import annotations

import threading
import time

import pytest

from local.kubelet import workqueue
from local.kubelet.workqueue import WorkQueue


def wait_until(condition, within: float = 10.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_key_is_never_handled_twice_at_once_and_comes_again_when_added_meanwhile() -> None:
    lock, inside, worst, handled = threading.Lock(), [0], [0], [0]

    def handle(_: str) -> None:
        with lock:
            inside[0] += 1
            worst[0] = max(worst[0], inside[0])
        time.sleep(0.02)
        with lock:
            inside[0] -= 1
            handled[0] += 1

    queue = WorkQueue("test", handle, threads=4)
    queue.start()
    queue.add("a")
    wait_until(lambda: inside[0] == 1)
    for _ in range(10):
        queue.add("a")
    wait_until(lambda: handled[0] == 2)
    time.sleep(0.1)
    assert (handled[0], worst[0]) == (2, 1), "ten additions while it was handled are one more"
    queue.stop()


def test_different_keys_are_handled_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=10)
    queue = WorkQueue("test", lambda _: meeting.wait() and None, threads=2)
    queue.start()
    queue.add("a")
    queue.add("b")
    meeting.wait()
    queue.stop()


def test_a_handler_says_when_it_is_due_again_and_news_come_sooner() -> None:
    seen: list[str] = []

    def handle(key: str) -> float | None:
        seen.append(key)
        return 3600.0 if key == "far" else 0.01 if len(seen) < 4 else None

    queue = WorkQueue("test", handle, threads=1)
    queue.start()
    queue.add("near")
    wait_until(lambda: len(seen) == 4)
    queue.add("far")
    wait_until(lambda: seen[4:] == ["far"])
    queue.add("far")
    wait_until(lambda: seen[4:] == ["far", "far"])
    queue.stop()


def test_the_soonest_of_two_timers_counts() -> None:
    seen = threading.Event()
    queue = WorkQueue("test", lambda _: seen.set(), threads=1)
    queue.add_after("a", 3600)
    queue.add_after("a", 0.01)
    queue.start()
    assert seen.wait(10)
    queue.stop()


def test_an_error_in_a_handler_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workqueue, "RETRY_S", 0.01)
    calls: list[str] = []

    def handle(key: str) -> None:
        calls.append(key)
        if len(calls) < 3:
            raise RuntimeError("not foreseen")

    queue = WorkQueue("test", handle, threads=1)
    queue.start()
    queue.add("a")
    wait_until(lambda: len(calls) == 3)
    queue.add("b")
    wait_until(lambda: calls[-1] == "b")
    queue.stop()
