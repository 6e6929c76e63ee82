"""Live logs: every line once, under its replica's name, across lost connections."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

from kubernetes import client as k8s
from urllib3.exceptions import ReadTimeoutError

from trainyard.kube import log_stream
from trainyard.kube.gang_state import PodView
from trainyard.kube.log_stream import Follower, GangLogs


def pod(uid: str = "u", over: bool = False) -> PodView:
    return PodView(
        name=f"pod-{uid}", uid=uid, role="worker", index=1, phase="Succeeded" if over else "Running", deleting=False, ready=True, node="n",
        started=True, exit_code=None, oom_killed=False, message=None, waits_for=None, memory_limit=None,
    )  # fmt: skip


class Stream:
    """One answer of the API server."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self._chunks = chunks

    def stream(self, **_: Any) -> Iterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def close(self) -> None: ...


class Server:
    """Answers in order; after the last one, the pod is gone."""

    def __init__(self, *answers: Stream | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def read_namespaced_pod_log(self, *_: Any, **options: Any) -> Stream:
        self.asked.append(options)
        if not self._answers:
            raise k8s.ApiException(status=404)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def followed(server: Server, *, tail: bool = False) -> list[str]:
    lines: queue.Queue[str] = queue.Queue()
    follower = Follower(server, "ns", pod(), lines, tail=tail)  # type: ignore[arg-type]
    follower.over.set()
    follower.start()
    follower.join(20)
    assert not follower.is_alive()
    return [lines.get_nowait() for _ in range(lines.qsize())]


def stamped(*lines: str, first: int = 1) -> bytes:
    return b"".join(f"2026-01-01T00:00:00.{first + i:09d}Z {line}\n".encode() for i, line in enumerate(lines))


def test_lines_are_whole_whatever_the_chunks_are() -> None:
    text = stamped("one", "two", "thrée")
    chunks = [text[i : i + 7] for i in range(0, len(text), 7)]
    assert followed(Server(Stream(*chunks))) == ["[worker-1] one", "[worker-1] two", "[worker-1] thrée"]


def test_after_a_lost_connection_no_line_is_shown_twice() -> None:
    timeout = ReadTimeoutError(None, "", "")  # type: ignore[arg-type]
    server = Server(Stream(stamped("one", "two"), timeout), ConnectionRefusedError(), Stream(stamped("one", "two", "three")))
    assert followed(server) == ["[worker-1] one", "[worker-1] two", "[worker-1] three"]
    assert "since_seconds" in server.asked[-1]


def test_two_lines_of_one_instant_are_both_shown() -> None:
    line = b"2026-01-01T00:00:00.000000001Z "
    assert followed(Server(Stream(line + b"a\n" + line + b"b\n"))) == ["[worker-1] a", "[worker-1] b"]


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    assert followed(Server(Stream(stamped("x").replace(b"x", b"\xff\x00")))) == ["[worker-1] \\xff\x00"]


def test_an_adopted_pod_is_shown_from_its_last_lines_and_a_new_one_from_its_first() -> None:
    server = Server()
    logs = GangLogs(server, "ns", adopted=True)  # type: ignore[arg-type]
    logs.observe([pod("old", over=True)])
    logs.observe([pod("old", over=True), pod("new", over=True)])
    list(logs.drain(10))
    logs.close()
    tails = sorted(options.get("tail_lines", 0) for options in server.asked)
    assert tails == [0, log_stream.TAIL_LINES]


def test_a_reader_that_is_slow_slows_the_stream_and_loses_nothing() -> None:
    lines: queue.Queue[str] = queue.Queue(maxsize=2)
    follower = Follower(Server(Stream(stamped(*map(str, range(20))))), "ns", pod(), lines, tail=False)  # type: ignore[arg-type]
    follower.over.set()
    follower.start()
    got = [lines.get(timeout=20) for _ in range(20)]
    assert got == [f"[worker-1] {n}" for n in range(20)]
    follower.join(20)
