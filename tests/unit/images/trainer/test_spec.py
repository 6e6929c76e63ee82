from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fixtures.run_spec import run_spec_document
from trainer import spec as specs
from trainer.errors import UserError


def _load(**changes: Any) -> specs.RunSpec:
    return specs.load(json.dumps(run_spec_document(**changes)))


def test_a_whole_document_is_read() -> None:
    spec = _load(dataset__config={"config": "small"}, code={"package": "p", "sha256": "0" * 64, "key": "code/p/0.whl"})
    assert spec.dataset.released == datetime(2026, 1, 1, tzinfo=UTC)
    assert spec.dataset.config == {"config": "small"}
    assert spec.code == specs.CodeSpec("p", "0" * 64, "code/p/0.whl")
    assert spec.training.learning_rate == 0.001
    assert _load(code=None).code is None


def test_a_whole_number_will_do_for_a_number() -> None:
    found = _load(training__learning_rate=1).training.learning_rate
    assert (found, type(found)) == (1.0, float)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": None}, "key seed: expected a whole number, got null"),
        ({"seed": True}, "key seed: expected a whole number, got true or false (True)"),
        ({"seed": "1"}, "key seed: expected a whole number, got text ('1')"),
        ({"requested": 1}, "key requested: expected true or false, got a whole number (1)"),
        ({"dataset": []}, "key dataset: expected an object, got a list"),
        ({"dataset__config": 3}, "key dataset.config: expected an object, got a whole number (3)"),
        ({"training__mode": "sync"}, "key training.mode is 'sync': expected one of async"),
        ({"training__batch_size": 0}, "training.batch_size is 0: must be greater than 0"),
        ({"training__steps": 10}, "training: exactly one of epochs (3) and steps (10) must be given"),
        ({"training__epochs": None}, "training: exactly one of epochs (None) and steps (None) must be given"),
        ({"created": "yesterday"}, "key created is 'yesterday': expected a time such as 2026-01-01T00:00:00Z"),
        ({"created": "2026-01-01T00:00:00"}, "key created is '2026-01-01T00:00:00': a time needs its zone"),
        ({"colour": "red"}, "key colour is unknown"),
        ({"gang__evaluators": 1}, "key gang.evaluators is unknown"),
        ({"version": 2}, "version 2: this trainer reads version 1 only"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        _load(**changes)
    assert said in str(caught.value)


def test_every_problem_is_in_one_error() -> None:
    document = run_spec_document(seed="x", gang__workers=None)
    del document["export"]
    with pytest.raises(UserError) as caught:
        specs.load(json.dumps(document))
    assert all(part in str(caught.value) for part in ("key seed", "key gang.workers", "key export is missing"))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="run spec"):
        specs.load(text)


def test_steps_of_a_training() -> None:
    assert _load(training__epochs=3, training__batch_size=32).training.total_steps(961) == 91
    assert _load(training__epochs=None, training__steps=7).training.total_steps(961) == 7
