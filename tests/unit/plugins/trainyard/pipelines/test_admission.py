"""``check`` on a real S3 server: what is written, how often, and when a run is not to be."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.fixtures.s3 import S3Server
from trainyard.contract import keys, names
from trainyard.errors import NotFoundError, RefusedError
from trainyard.pipelines import admission, turns
from trainyard.pipelines.admission import Admission
from trainyard.settings import load_tenant
from trainyard.steps import check
from trainyard.store import Store

CHECKOUT = Path(__file__).resolve().parents[5]


class Airflow:
    """The runs of one pipeline, as Airflow would have ``check`` see them."""

    def __init__(self, store: Store, tenant: str, pipeline: str) -> None:
        self.store, self.tenant, self.pipeline = store, tenant, pipeline
        self.waiting: dict[str, int] = {}
        """DAG's id → how many of its gangs wait for slots."""
        self.asked: list[dict[str, Any]] = []
        self.began = datetime.datetime.now(datetime.UTC)

    def get_ti_count(self, **query: Any) -> int:
        """Of the task instance, as the Task SDK has it."""
        self.asked.append(query)
        return self.waiting.get(query["dag_id"], 0)

    def context(self, run_id: str, kind: str = "manual", conf: dict[str, Any] | None = None, key: str | None = None) -> Any:
        dag_id = names.dag_id(self.tenant, self.pipeline)
        run = SimpleNamespace(dag_id=dag_id, run_id=run_id, conf=conf or {}, partition_key=key, run_type=kind, start_date=self.began)
        return {"dag_run": run, "ti": self}

    def admit(self, run_id: str, kind: str = "manual", conf: dict[str, Any] | None = None, key: str | None = None) -> str | None:
        return Admission(self.tenant, self.pipeline)(self.context(run_id, kind, conf, key))

    def run(self, run_id: str) -> str:
        return names.run_name(self.pipeline, names.dag_id(self.tenant, self.pipeline), run_id)

    def spec(self, run_id: str) -> Any:
        return self.store.get_json(keys.spec(self.run(run_id)))

    def ended(self, run_id: str, outcome: str) -> None:
        self.store.put_json(keys.run_result(self.run(run_id)), {"outcome": outcome})


@pytest.fixture
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "config"
    shutil.copytree(CHECKOUT / "config", copy)
    monkeypatch.setenv("TRAINYARD_CONFIG", str(copy))
    monkeypatch.setenv("TRAINYARD_CLUSTER", "embedded")
    return copy


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str, config_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store(s3_bucket, s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key)
    monkeypatch.setattr(admission, "store_for", lambda settings, tenant: found)
    monkeypatch.setenv("TRAINYARD_S3_ENDPOINT", s3_server.endpoint)
    return found


@pytest.fixture
def digits(store: Store) -> Airflow:
    return Airflow(store, "vision", "digits-mlp")


def test_the_spec_is_written_once_whatever_happens_later(digits: Airflow, config_dir: Path) -> None:
    assert digits.admit("manual__1", conf={"epochs": 3}, key="1.0.0") is None
    first = digits.spec("manual__1")
    assert (first["training"]["epochs"], first["dataset"]["version"], first["requested"]) == (3, "1.0.0", True)
    pipeline = config_dir / "pipelines" / "digits-mlp.yaml"
    pipeline.write_text(pipeline.read_text().replace("batch_size: 32", "batch_size: 16"))
    assert digits.admit("manual__1", conf={"epochs": 3}, key="1.0.0") is None
    assert digits.spec("manual__1") == first
    digits.admit("manual__2")
    assert digits.spec("manual__2")["training"]["batch_size"] == 16


def test_a_refused_form_writes_nothing(digits: Airflow) -> None:
    with pytest.raises(RefusedError, match="digits has 2 shards"):
        digits.admit("manual__1", conf={"workers": 3})
    assert list(digits.store.list("")) == []


@pytest.mark.parametrize("outcome", ["exported", "rejected"])
def test_a_scheduled_run_of_what_was_done_is_unchanged(digits: Airflow, outcome: str) -> None:
    digits.admit("scheduled__1", "scheduled", key="1.1.0")
    digits.ended("scheduled__1", outcome)
    reason = digits.admit("scheduled__2", "scheduled", key="1.1.0")
    assert reason is not None
    assert digits.run("scheduled__1") in reason
    result = digits.store.get_json(keys.run_result(digits.run("scheduled__2")))
    assert result is not None
    assert (result["outcome"], result["dataset_version"]) == ("unchanged", "1.1.0")
    assert digits.spec("scheduled__2") is None


def test_what_a_person_asked_for_is_trained(digits: Airflow) -> None:
    digits.admit("scheduled__1", "scheduled", key="1.1.0")
    digits.ended("scheduled__1", "exported")
    for kind in ("manual", "backfill"):
        assert digits.admit(f"{kind}__2", kind, key="1.1.0") is None


def test_a_failed_run_is_no_reason_to_rest(digits: Airflow) -> None:
    digits.admit("scheduled__1", "scheduled", key="1.1.0")
    digits.ended("scheduled__1", "failed")
    assert digits.admit("scheduled__2", "scheduled", key="1.1.0") is None


def test_the_last_good_run_counts_and_not_any_good_run(digits: Airflow) -> None:
    for number, key in enumerate(["1.1.0", "1.0.0"]):
        digits.admit(f"manual__{number}", "manual", key=key)
        digits.ended(f"manual__{number}", "exported")
    assert digits.admit("scheduled__3", "scheduled", key="1.1.0") is None


def test_retrain_always(digits: Airflow, config_dir: Path) -> None:
    pipeline = config_dir / "pipelines" / "digits-mlp.yaml"
    pipeline.write_text(pipeline.read_text() + "retrain: always\n")
    for number in (1, 2):
        assert digits.admit(f"scheduled__{number}", "scheduled", key="1.1.0") is None
        digits.ended(f"scheduled__{number}", "exported")


def test_code_is_resolved_to_the_newest_published_digest(store: Store) -> None:
    own = Airflow(store, "tabular", "digits-own")
    with pytest.raises(NotFoundError, match=r"package digits_model is not published: `trainyard publish digits-own`"):
        own.admit("manual__1")
    for letter in "ab":
        digest = letter * 64
        key = keys.code_wheel("digits_model", digest)
        store.put_json(keys.code_newest("digits_model"), {"sha256": digest, "key": key})
        own.admit(f"manual__{letter}")
    own.admit("manual__a")
    assert [own.spec(f"manual__{letter}")["code"]["sha256"] for letter in "ab"] == ["a" * 64, "b" * 64]


def test_a_pinned_digest(store: Store, config_dir: Path) -> None:
    own = Airflow(store, "tabular", "digits-own")
    pipeline = config_dir / "pipelines" / "digits-own.yaml"
    pipeline.write_text(pipeline.read_text().replace("  package: digits_model\n", f"  package: digits_model\n  digest: {'c' * 64}\n"))
    with pytest.raises(NotFoundError, match="no published wheel cccccccccccc"):
        own.admit("manual__1")
    store.put(keys.code_wheel("digits_model", "c" * 64), b"wheel")
    own.admit("manual__1")
    assert own.spec("manual__1")["code"]["sha256"] == "c" * 64


def test_a_draining_tenant_begins_nothing_and_ends_what_it_began(digits: Airflow, config_dir: Path) -> None:
    digits.admit("manual__1", key="1.0.0")
    tenant = config_dir / "tenants" / "vision.yaml"
    tenant.write_text(tenant.read_text().replace("state: active", "state: draining"))
    for kind in ("manual", "scheduled", "backfill"):
        with pytest.raises(RefusedError, match=r"tenant vision is draining, no new run begins: tenants/vision\.yaml says"):
            digits.admit(f"{kind}__2", kind)
    assert digits.spec("manual__2") is None
    # A step of the run that goes on may be repeated, and Airflow repeats its check then too.
    assert digits.admit("manual__1", key="1.0.0") is None


def test_a_run_waits_for_its_turn_while_a_gang_of_the_tenant_waits(digits: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SECOND_LOOK_S", 0)
    digits.waiting = {"train_vision_mnist-cnn": 1, "train_tabular_digits-own": 5}
    with pytest.raises(check.NotYet, match=r"a gang of tenant vision waits .* first: train_vision_mnist-cnn \(5 of 6 slots"):
        digits.admit("manual__1")
    assert list(digits.store.list("")) == []
    assert {query["dag_id"] for query in digits.asked} == {"train_vision_mnist-cnn", "train_vision_digits-mlp"}
    assert all((query["task_ids"], query["states"]) == (["train"], ["scheduled"]) for query in digits.asked)
    # One that has waited for hours begins all the same: the gang may be one that nobody lets go on.
    digits.began -= turns.AT_MOST + datetime.timedelta(minutes=1)
    assert digits.admit("manual__2") is None
    digits.waiting = {"train_tabular_digits-own": 5}
    digits.began = datetime.datetime.now(datetime.UTC)
    assert digits.admit("manual__1") is None


def test_waiting_for_a_turn_spends_no_retry_and_holds_no_worker(digits: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    from trainyard.settings import load_tenant

    monkeypatch.setattr(turns, "SECOND_LOOK_S", 0)
    task = check.build(load_tenant("vision").settings.pipelines["digits-mlp"], Admission("vision", "digits-mlp"))
    digits.waiting = {"train_vision_digits-mlp": 1}
    with pytest.raises(AirflowRescheduleException) as caught:
        task.execute(digits.context("manual__1"))
    wait = caught.value.reschedule_date - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(0) < wait <= check.ASK_AGAIN


def test_a_gang_waits_for_a_moment_always(digits: Airflow) -> None:
    """The scheduler's own round is no reason to hold anybody."""
    counts = iter([1, 0, 0])
    settings = load_tenant("vision").settings
    slept: list[float] = []
    assert turns.gangs_that_wait(settings, "vision", lambda dag_id: next(counts), slept.append) is None
    assert slept == [turns.SECOND_LOOK_S]


def test_a_gang_that_cannot_fit_any_more_holds_nobody(digits: Airflow, config_dir: Path) -> None:
    """Slots were lowered below what its file asks for: it waits, and the smaller ones go on."""
    tenant = config_dir / "tenants" / "vision.yaml"
    tenant.write_text(tenant.read_text().replace("slots: 6", "slots: 4"))
    digits.waiting = {"train_vision_mnist-cnn": 1}
    assert digits.admit("manual__1") is None


def test_a_pipeline_that_broke_since_the_parse(digits: Airflow, config_dir: Path) -> None:
    (config_dir / "pipelines" / "digits-mlp.yaml").write_text("tenant: vision\n")
    with pytest.raises(NotFoundError, match=r"pipelines/digits-mlp\.yaml cannot be used any more"):
        digits.admit("manual__1")


def test_many_runs_admitted_at_once_are_all_remembered(digits: Airflow) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: digits.admit(f"manual__{n}"), range(6)))
    document = digits.store.get_json(keys.admitted("digits-mlp"))
    assert document is not None
    assert {entry["run"] for entry in document["runs"]} == {digits.run(f"manual__{n}") for n in range(6)}
    assert len(document["runs"]) == 6


def test_the_task_fails_for_good_on_a_refusal_and_is_skipped_when_there_is_nothing_to_do(digits: Airflow) -> None:
    from trainyard.settings import load_tenant

    pipeline = load_tenant("vision").settings.pipelines["digits-mlp"]
    task = check.build(pipeline, Admission("vision", "digits-mlp"))
    with pytest.raises(AirflowFailException, match="digits has 2 shards"):
        task.execute(digits.context("manual__1", conf={"workers": 3}))
    task.execute(digits.context("scheduled__1", "scheduled"))
    digits.ended("scheduled__1", "exported")
    with pytest.raises(AirflowSkipException, match="nothing to do"):
        task.execute(digits.context("scheduled__2", "scheduled"))
