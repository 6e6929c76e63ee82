"""Generations by compare-and-swap, on a real S3 server."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from trainyard.contract import keys
from trainyard.errors import ConflictError, UnavailableError
from trainyard.operators.generations import Generations
from trainyard.store import Store


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> Store:
    return Store(s3_bucket, s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key)


def test_numbers_follow_each_other(store: Store) -> None:
    generations = Generations(store, "r")
    assert generations.current() is None
    assert [generations.take("a"), generations.take("b")] == [1, 2]
    current = generations.current()
    assert current is not None
    assert (current.number, current.spec_sha256) == (2, "b")


def test_of_operators_at_once_each_number_goes_to_one(store: Store) -> None:
    won: list[int] = []
    lost: list[ConflictError] = []

    def take() -> None:
        try:
            won.append(Generations(store, "r").take("a"))
        except ConflictError as error:
            lost.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(1, len(won) + 1))
    assert len(won) + len(lost) == 8


def test_a_lost_answer_is_no_lost_generation(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    generations = Generations(store, "r")
    put = Store.put_json

    def put_and_lose_the_answer(self: Store, key: str, value: Any, **conditions: Any) -> str:
        put(self, key, value, **conditions)
        raise UnavailableError("connection reset")

    monkeypatch.setattr(Store, "put_json", put_and_lose_the_answer)
    assert generations.take("a") == 1


def test_results_and_reports(store: Store) -> None:
    generations = Generations(store, "r")
    assert generations.result(1) is None
    store.put_json(keys.generation_result("r", 1), {"version": 1, "exit_code": 47, "message": "loss is nan", "checkpoint_step": 5})
    result = generations.result(1)
    assert result is not None
    assert (result.good, result.reason, result.message, result.checkpoint_step) == (False, "Diverged", "loss is nan", 5)
    assert not generations.is_reported(1)
    generations.report(1)
    generations.report(1)
    assert generations.is_reported(1)
    assert not generations.is_reported(2)


@pytest.mark.parametrize("document", [[], {"exit_code": "x"}, {"reason": "Ok"}, "text"])
def test_what_is_no_result_is_said_to_be_none(store: Store, document: Any) -> None:
    store.put_json(keys.generation_result("r", 1), document)
    with pytest.raises(UnavailableError, match=r"generations/1/result.json is no result"):
        Generations(store, "r").result(1)


def test_failures_by_replica(store: Store) -> None:
    store.put_json(keys.replica_failure("r", 2, "worker-1"), {"exit_code": 40, "reason": "UserError", "message": "bad model"})
    assert Generations(store, "r").failures(2) == {"worker-1": "UserError: bad model"}
    assert Generations(store, "r").failures(1) == {}
