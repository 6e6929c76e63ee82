"""The outcome that ``clean_up`` writes: only if no step has, and with the reason that S3 knows."""

from __future__ import annotations

import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainyard.contract import keys
from trainyard.store import Store
from trainyard.upkeep.clean_up import _write_result as write_result

RUN = "digits-mlp-0123456789"


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> Store:
    return Store(s3_bucket, s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key)


def test_a_run_that_failed_in_the_gang_says_why(store: Store) -> None:
    store.put_json(keys.spec(RUN), run_spec_document())
    store.put_json(keys.generation(RUN), {"generation": 2})
    store.put_json(keys.generation_result(RUN, 1), {"reason": "StorageError", "message": "old"})
    store.put_json(keys.generation_result(RUN, 2), {"reason": "UserError", "message": "Traceback…\nmodel.py:3: NameError: kears\n"})
    result = write_result(store, RUN, "failed")
    assert store.get_json(keys.run_result(RUN)) == result
    assert (result["outcome"], result["reason"]) == ("failed", "UserError: model.py:3: NameError: kears")
    assert (result["model"], result["model_version"], result["dataset_version"]) == ("digits-mlp", None, "1.0.0")
    assert set(result) == {"version", "outcome", "reason", "metrics", "model", "model_version", "dataset_version", "ended"}


def test_a_run_that_was_ended_before_any_gang(store: Store) -> None:
    result = write_result(store, RUN, "cancelled")
    assert (result["outcome"], result["reason"], result["dataset_version"]) == ("cancelled", None, None)


def test_a_gang_that_ended_well_is_no_reason(store: Store) -> None:
    store.put_json(keys.generation(RUN), {"generation": 1})
    store.put_json(keys.generation_result(RUN, 1), {"reason": "Ok", "message": "done"})
    assert write_result(store, RUN, "failed")["reason"] is None


def test_what_a_step_has_written_stays(store: Store) -> None:
    exported = {"version": 1, "outcome": "exported", "reason": None}
    store.put_json(keys.run_result(RUN), exported)
    assert write_result(store, RUN, "failed") == exported
    assert store.get_json(keys.run_result(RUN)) == exported


def test_the_end_of_an_earlier_try_gives_way_to_the_present_one(store: Store) -> None:
    assert write_result(store, RUN, "cancelled")["outcome"] == "cancelled"
    assert write_result(store, RUN, "failed")["outcome"] == "failed"
    assert store.get_json(keys.run_result(RUN))["outcome"] == "failed"
