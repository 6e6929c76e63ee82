"""What is kept of runs and models, on a real S3 server: time is told, not waited for."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainyard.contract import keys
from trainyard.settings.tenants import Retention
from trainyard.store import Store
from trainyard.upkeep.retention import WITHOUT_RESULT_DAYS, Removed, sweep

RUN = "digits-mlp-0123456789"
OTHER = "digits-mlp-abcdef0123"
MODEL = "digits-mlp"


def store_of(server: S3Server, bucket: str) -> Store:
    return Store(bucket, server.endpoint, server.region, server.access_key, server.secret_key)


@pytest.fixture
def data(s3_server: S3Server) -> Store:
    return store_of(s3_server, s3_server.new_bucket("data"))


@pytest.fixture
def models(s3_server: S3Server) -> Store:
    return store_of(s3_server, s3_server.new_bucket("models"))


def after(days: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=days)


def make_run(store: Store, run: str, *, result: bool = True) -> None:
    store.put_json(keys.spec(run), run_spec_document(run=run))
    store.put(f"{keys.logs(run, 'chief-0')}a/00000000.log", b"line")
    store.put(f"{keys.checkpoint(run, 10)}weights", b"w")
    if result:
        store.put_json(keys.run_result(run), {"outcome": "exported"})


def make_model(store: Store, model: str, versions: range, *, champion: int) -> None:
    for version in versions:
        store.put(f"{keys.model_version(model, version)}saved_model.pb", b"m")
        store.put_json(keys.model_marker(model, version), {"version": version})
        store.put_json(keys.model_claim(model, version), {"run": "r"})
    store.put_json(keys.champion(model), {"version": champion})


def keys_in(store: Store) -> set[str]:
    return {one.key for one in store.list("")}


class TestRuns:
    def test_an_old_runs_folder_goes_but_for_what_became_of_it(self, data: Store, models: Store) -> None:
        make_run(data, RUN)
        data.put(keys.code_newest("p"), b"{}")
        data.put("datasets/d/1.0.0/x/manifest.json", b"{}")
        rule = Retention(runs_days=7)
        assert list(sweep(data, models, rule, now=after(6.9), dry_run=False)) == []
        before = keys_in(data)
        assert list(sweep(data, models, rule, now=after(7.1), dry_run=True)) == [Removed(f"run {RUN}", 3)]
        assert keys_in(data) == before
        assert list(sweep(data, models, rule, now=after(7.1), dry_run=False)) == [Removed(f"run {RUN}", 3)]
        assert keys_in(data) == {keys.run_result(RUN), keys.code_newest("p"), "datasets/d/1.0.0/x/manifest.json"}
        assert list(sweep(data, models, rule, now=after(700), dry_run=False)) == []

    def test_without_a_number_all_stays(self, data: Store, models: Store) -> None:
        make_run(data, RUN)
        make_model(models, MODEL, range(1, 9), champion=8)
        assert list(sweep(data, models, Retention(), now=after(36_500), dry_run=False)) == []

    def test_a_run_without_a_result_may_still_be_waiting(self, data: Store, models: Store) -> None:
        make_run(data, RUN, result=False)
        make_run(data, OTHER)
        rule = Retention(runs_days=1)
        assert [one.what for one in sweep(data, models, rule, now=after(2), dry_run=False)] == [f"run {OTHER}"]
        assert [one.what for one in sweep(data, models, rule, now=after(WITHOUT_RESULT_DAYS + 1), dry_run=False)] == [f"run {RUN}"]


class TestModels:
    def test_the_newest_stay_and_the_champion_whatever_its_age(self, data: Store, models: Store) -> None:
        make_model(models, MODEL, range(1, 13), champion=3)
        make_model(models, "other", range(1, 3), champion=2)
        # Still being exported: no marker yet.
        models.put(f"{keys.model_version(MODEL, 13)}saved_model.pb", b"m")
        removed = [one.what for one in sweep(data, models, Retention(model_versions=2), now=after(0), dry_run=False)]
        assert removed == [f"model {MODEL} version {version}" for version in (1, 2, 4, 5, 6, 7, 8, 9, 10)]
        left = keys_in(models)
        assert {version for version in range(1, 14) if f"{keys.model_version(MODEL, version)}saved_model.pb" in left} == {3, 11, 12, 13}
        assert {keys.model_claim(MODEL, version) for version in range(1, 13)} <= left, "a number is given once"
        assert models.get_json(keys.champion(MODEL)) == {"version": 3}
        assert {keys.model_marker("other", 1), keys.model_marker("other", 2)} <= left
        assert list(sweep(data, models, Retention(model_versions=2), now=after(0), dry_run=False)) == []

    def test_a_dry_run_removes_none(self, data: Store, models: Store) -> None:
        make_model(models, MODEL, range(1, 4), champion=3)
        before = keys_in(models)
        assert len(list(sweep(data, models, Retention(model_versions=1), now=after(0), dry_run=True))) == 2
        assert keys_in(models) == before
