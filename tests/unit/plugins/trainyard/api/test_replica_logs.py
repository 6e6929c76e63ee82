"""A reader by cursor gets every byte once, in order, however it is cut and whenever it comes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from trainyard.api import replica_logs
from trainyard.contract import keys
from trainyard.errors import ConfigError, NotFoundError
from trainyard.store import Store

if TYPE_CHECKING:
    from conftest import World

RUN = "digits-mlp-0123456789"
VISION = "train_vision_digits-mlp"
FIRST = "20260301T100000Z-chief-abc"
SECOND = "20260301T101000Z-chief-def"


def _put(store: Store, attempt: str, number: int, data: bytes, replica: str = "chief-0") -> None:
    store.put(f"{keys.logs(RUN, replica)}{attempt}/{number:08d}.log", data)


def _end(store: Store, attempt: str, chunks: list[bytes], exit_code: int = 0) -> None:
    document = {"exit_code": exit_code, "bytes": sum(map(len, chunks)), "chunks": len(chunks)}
    store.put_json(f"{keys.logs(RUN, 'chief-0')}{attempt}/end.json", document)


def _read_all(store: Store, cursor: str = "", *, over: bool = False) -> tuple[bytes, str, str]:
    data = b""
    while True:
        piece = replica_logs.read(store, RUN, "chief-0", cursor, run_is_over=over)
        data, cursor = data + piece.data, piece.cursor
        if piece.state != "more":
            return data, cursor, piece.state


def test_a_log_is_read_while_it_grows(world: World) -> None:
    store, chunks = world.store(), [b"one\n", b"tw", b"o\nthree\n", b"\xc3", b"\xa9\n"]
    got, cursor = b"", ""
    for number, chunk in enumerate(chunks):
        _put(store, FIRST, number, chunk)
        data, cursor, state = _read_all(store, cursor)
        got += data
        assert state == "waiting"
    _end(store, FIRST, chunks)
    assert _read_all(store, cursor) == (b"", cursor, "ended")
    assert got == b"".join(chunks)
    assert _read_all(store)[0] == got


def test_answers_are_bounded_and_join_without_a_gap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_logs, "ANSWER_BYTES", 1000)
    store, dice = world.store(), random.Random(1)
    chunks = [dice.randbytes(dice.choice([1, 7, 999, 1000, 1001, 3500])) for _ in range(25)]
    for number, chunk in enumerate(chunks):
        _put(store, FIRST, number, chunk)
    cursor, got, answers = "", b"", 0
    while True:
        piece = replica_logs.read(store, RUN, "chief-0", cursor, run_is_over=True)
        assert len(piece.data) <= 1000
        got, cursor, answers = got + piece.data, piece.cursor, answers + 1
        if piece.state != "more":
            break
    assert got == b"".join(chunks)
    assert answers >= len(got) / 1000


def test_a_chunk_that_came_before_its_turn_waits(world: World) -> None:
    store = world.store()
    _put(store, FIRST, 0, b"a")
    _put(store, FIRST, 2, b"c")
    data, cursor, state = _read_all(store)
    assert (data, state) == (b"a", "waiting")
    _put(store, FIRST, 1, b"b")
    assert _read_all(store, cursor)[0] == b"bc"


def test_attempts_follow_each_other(world: World) -> None:
    """The first was killed with its supervisor and has no end: the second says that it is over."""
    store = world.store()
    _put(store, FIRST, 0, b"first\n")
    data, cursor, state = _read_all(store)
    assert (data, state) == (b"first\n", "waiting")
    _put(store, FIRST, 1, b"last words\n")
    _put(store, SECOND, 0, b"second\n")
    assert _read_all(store, cursor)[::2] == (b"last words\nsecond\n", "waiting")
    _end(store, SECOND, [b"second\n"])
    assert _read_all(store)[::2] == (b"first\nlast words\nsecond\n", "ended")


def test_a_log_without_an_end_is_over_with_its_run(world: World) -> None:
    store = world.store()
    _put(store, FIRST, 0, b"x")
    assert _read_all(store)[2] == "waiting"
    assert _read_all(store, over=True)[2] == "ended"


def test_an_overview_says_what_is_whole(world: World) -> None:
    store = world.store()
    for replica in ("worker-10", "worker-2", "ps-0", "prepare"):
        _put(store, FIRST, 0, b"x", replica)
    _put(store, FIRST, 0, b"abc")
    _end(store, FIRST, [b"abc", b"missing"], exit_code=137)
    _put(store, SECOND, 0, b"abcd")
    _end(store, SECOND, [b"abcd"])
    found = replica_logs.overview(store, RUN)
    assert [item["replica"] for item in found] == ["prepare", "chief-0", "ps-0", "worker-2", "worker-10"]
    assert found[1]["attempts"] == [
        {"attempt": FIRST, "bytes": 3, "exit_code": 137, "whole": False},
        {"attempt": SECOND, "bytes": 4, "exit_code": 0, "whole": True},
    ]
    assert found[2]["attempts"] == [{"attempt": FIRST, "bytes": 1, "exit_code": None, "whole": False}]


@pytest.mark.parametrize("cursor", ["x", "a:b:c", f"{FIRST}:0", f"{FIRST}:-1:0", "../../other:0:0", f"{FIRST}:{'9' * 50}:0", "unknown:0:0"])
def test_a_cursor_that_is_not_ours_is_refused(world: World, cursor: str) -> None:
    _put(world.store(), FIRST, 0, b"x")
    with pytest.raises(ConfigError):
        replica_logs.read(world.store(), RUN, "chief-0", cursor, run_is_over=False)


@pytest.mark.parametrize("replica", ["nothing", "..", "chief-0/../ps-0", "", "A"])
def test_a_replica_that_is_not_there_is_refused(world: World, replica: str) -> None:
    _put(world.store(), FIRST, 0, b"x")
    with pytest.raises(NotFoundError):
        replica_logs.read(world.store(), RUN, replica, "", run_is_over=False)


def test_bytes_come_through_the_app_as_they_are(world: World) -> None:
    name = world.airflow.add(VISION, "r1", "failed")
    data = bytes(range(256)) * 10
    world.store().put(f"{keys.logs(name, 'worker-1')}{FIRST}/00000000.log", data)
    answer = world.ask("alice", "GET", f"/runs/{VISION}/r1/logs/worker-1")
    assert answer.content == data
    assert answer.headers["Trainyard-State"] == "ended"
    again = world.ask("alice", "GET", f"/runs/{VISION}/r1/logs/worker-1", params={"cursor": answer.headers["Trainyard-Cursor"]})
    assert again.content == b""
    assert world.ask("alice", "GET", f"/runs/{VISION}/r1/logs").json()["replicas"][0]["attempts"][0]["bytes"] == 2560
    assert world.ask("alice", "GET", f"/runs/{VISION}/r1/logs/worker-1", params={"cursor": "x"}).status_code == 400
    assert world.ask("alice", "GET", f"/runs/{VISION}/nothing/logs/worker-1").status_code == 404
