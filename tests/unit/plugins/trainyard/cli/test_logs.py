"""Following logs: each byte once, whole lines, a prefix where several replicas speak, and an end."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.cli import logs
from trainyard.errors import UnavailableError

if TYPE_CHECKING:
    from conftest import Server, Trainyard

Script = dict[str, list[tuple[bytes, str]]]


def _reader(script: Script) -> Callable[[str, str], tuple[bytes, str, str]]:
    """Answers each replica's asks in turn; the cursor must be the one that was given last."""
    given = dict.fromkeys(script, "")

    def read(name: str, cursor: str) -> tuple[bytes, str, str]:
        assert cursor == given[name]
        data, state = script[name].pop(0) if script[name] else (b"", "ended")
        given[name] = f"{name}{len(script[name])}"
        return data, given[name], state

    return read


def _written(script: Script, rounds: list[tuple[list[str], bool]], *, prefix: bool = True, follow: bool = True) -> bytes:
    into = io.BytesIO()
    logs.write(
        _reader(script),
        lambda: rounds.pop(0) if len(rounds) > 1 else rounds[0],
        prefix=prefix,
        follow=follow,
        into=into,
        sleep=lambda _: None,
    )
    return into.getvalue()


def test_lines_of_several_replicas_never_meet_inside_a_line() -> None:
    script: Script = {"chief-0": [(b"one\ntw", "waiting"), (b"o\n", "ended")], "ps-0": [(b"hello\n", "ended")]}
    both = ["chief-0", "ps-0"]
    assert _written(script, [(both, True), (both, False)]) == b"[chief-0] one\n[ps-0] hello\n[chief-0] two\n"


def test_a_replica_that_comes_later_is_read_from_its_beginning() -> None:
    script: Script = {"prepare": [(b"a\n", "ended"), (b"", "ended")], "chief-0": [(b"b\n", "ended")]}
    rounds = [(["prepare"], True), (["prepare", "chief-0"], False)]
    assert _written(script, rounds) == b"[prepare] a\n[chief-0] b\n"


def test_another_try_of_a_replica_is_read_on() -> None:
    script: Script = {"train": [(b"first\n", "ended"), (b"second\n", "ended")]}
    assert _written(script, [(["train"], True), (["train"], False)], prefix=False) == b"first\nsecond\n"


def test_a_last_line_without_an_end_is_not_lost() -> None:
    assert _written({"a": [(b"no end", "ended")]}, [(["a"], False)]) == b"[a] no end\n"
    assert _written({"a": [(b"no end yet", "waiting")]}, [(["a"], False)], follow=False) == b"[a] no end yet\n"


def test_much_is_read_at_once() -> None:
    script: Script = {"a": [(b"x" * 1000, "more"), (b"y" * 1000 + b"\n", "more"), (b"z\n", "ended")]}
    assert _written(script, [(["a"], False)], follow=False, prefix=False) == b"x" * 1000 + b"y" * 1000 + b"\nz\n"


def test_a_follower_outlives_a_restart_of_airflow() -> None:
    looks: list[Any] = [(["a"], True), UnavailableError("away"), UnavailableError("away"), (["a"], False)]

    def replicas() -> tuple[list[str], bool]:
        look = looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look

    into = io.BytesIO()
    script: Script = {"a": [(b"one\n", "waiting"), (b"two\n", "ended")]}
    logs.write(_reader(script), replicas, prefix=False, follow=True, into=into, sleep=lambda _: None)
    assert into.getvalue() == b"one\ntwo\n"


def test_a_follower_gives_up_in_the_end() -> None:
    times = iter(range(0, 10_000, 60))

    def away() -> tuple[list[str], bool]:
        raise UnavailableError("away")

    with pytest.raises(UnavailableError):
        logs.write(_reader({}), away, prefix=False, follow=True, into=io.BytesIO(), sleep=lambda _: None, clock=lambda: next(times))


def _log(server: Server, shapes: Any, **replicas: bytes) -> None:
    server.documents = [shapes.document("success", [])]
    base = f"/trainyard/runs/{server.documents[0]['dag_id']}/{server.documents[0]['run_id']}/logs"
    known = []
    for name, data in replicas.items():
        server.answers["GET", f"{base}/{name}"] = (200, data)
        known.append({"replica": name, "attempts": [{"attempt": "a", "bytes": len(data), "exit_code": 0, "whole": True}]})
    server.answers["GET", base] = (200, {"replicas": known})


def test_logs_of_one_replica_are_its_bytes(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    _log(server, shapes, prepare="é\n".encode(), plan=b"p\n")
    assert trainyard("logs", "digits-mlp", "prepare").out == "é\n"
    assert trainyard("logs", "digits-mlp", "prepare", "-f").out == "é\n"
    assert trainyard("logs", "digits-mlp").out == "[prepare] é\n[plan] p\n"
    assert trainyard("logs", "digits-mlp", "-f").out == "[prepare] é\n[plan] p\n"
    assert [r["replica"] for r in trainyard("logs", "digits-mlp", "--json").lines[0]["replicas"]] == ["prepare", "plan"]
    assert "prepare" in trainyard("logs", "digits-mlp", "--list").out


def test_logs_that_are_not_there(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    _log(server, shapes, prepare=b"x\n")
    for words in (("prepaer",), ("prepaer", "-f")):
        done = trainyard("logs", "digits-mlp", *words)
        assert (done.code, "did you mean `prepare`?" in done.err) == (2, True), words
    _log(server, shapes)
    server.documents = [shapes.document("running", [])]
    done = trainyard("logs", "digits-mlp")
    assert (done.code, "no logs yet" in done.err, "`-f` waits" in done.err) == (2, True, True)


def test_a_run_that_ended_before_any_pod_says_why_there_are_no_logs(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    _log(server, shapes)
    server.documents = [document := shapes.document("failed", [shapes.step("check", "failed")])]
    path = f"/api/v2/dags/{document['dag_id']}/dagRuns/{document['run_id']}/taskInstances/check/logs/1"
    server.answers["GET", path] = (200, {"content": [{"error_detail": [{"exc_value": "5 slots; tenant vision has 4"}]}]})
    for words in ((), ("-f",)):
        done = trainyard("logs", "digits-mlp", *words)
        assert (done.code, done.out) == (2, "")
        assert "has ended (failed)" in done.err
        assert "5 slots; tenant vision has 4 (`trainyard status digits-mlp-0123456789`)" in done.err
        assert "waits" not in done.err


def test_a_role_stands_for_all_of_its_replicas(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    _log(server, shapes, **{"chief-0": b"c\n", "worker-0": b"a\n", "worker-1": b"b\n", "worker-pool": b"x\n"})
    assert trainyard("logs", "digits-mlp", "chief").out == "c\n"
    assert sorted(trainyard("logs", "digits-mlp", "worker").out.splitlines()) == ["[worker-0] a", "[worker-1] b"]
    assert "no log of `ps`" in trainyard("logs", "digits-mlp", "ps").err
