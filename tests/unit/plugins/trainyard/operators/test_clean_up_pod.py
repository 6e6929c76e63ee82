"""The teardown's verdict: what was red ends red, and green needs evidence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract.run_spec import RunSpec
from trainyard.operators import clean_up_pod
from trainyard.operators.clean_up_pod import CleanUpPod
from trainyard.operators.step_pod import HousePod
from trainyard.settings.clusters import S3, ClusterProfile, Images

SPEC = RunSpec.model_validate(run_spec_document())


class Run:
    """A run with states and, perhaps, a result."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: dict[str, str | None] = {}
        self.result: dict[str, Any] | None = None
        self.left: dict[str, str] = {}
        store = SimpleNamespace(get_json=lambda key: self.result)
        profile = ClusterProfile(
            name="c", addressing="dns", port=2222, images=Images(trainer="t:1", airflow="a:1"), s3=S3(mode="external", bucket_prefix="abc")
        )
        access = SimpleNamespace(spec=SPEC, store=store, settings=SimpleNamespace(cluster=profile))
        monkeypatch.setattr(clean_up_pod, "open_run", lambda tenant, run: access)
        monkeypatch.setattr(HousePod, "execute", lambda *_: None)

    def end(self) -> None:
        dag_run = SimpleNamespace(dag_id="d", run_id="r")
        ti = SimpleNamespace(
            get_task_states=lambda dag_id, run_ids: {"r": self.states | {"clean_up": "running"}},
            xcom_push=lambda key, value: self.left.update({key: value}),
        )
        task().execute({"ti": ti, "dag_run": dag_run})  # type: ignore[typeddict-item,arg-type]


def task() -> CleanUpPod:
    return CleanUpPod(task_id="clean_up", tenant="vision", pipeline="digits-mlp")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


@pytest.mark.parametrize("outcome", ["exported", "rejected"])
def test_green_with_evidence(run: Run, outcome: str) -> None:
    run.states = {"check": "success", "train": "success", "export": "skipped" if outcome == "rejected" else "success"}
    run.result = {"outcome": outcome}
    run.end()


@pytest.mark.parametrize("state", ["failed", "upstream_failed"])
def test_red_stays_red(run: Run, state: str) -> None:
    run.states = {"check": "success", "train": state, "export": "skipped"}
    run.result = {"outcome": "exported"}
    with pytest.raises(AirflowFailException, match="the run is red: train"):
        run.end()


@pytest.mark.parametrize("result", [None, {"outcome": "failed"}, {"outcome": "cancelled"}])
def test_a_run_whose_tasks_were_all_skipped_is_not_green(run: Run, result: dict[str, Any] | None) -> None:
    """Airflow ends a run that was marked failed between two tasks as success: its leaves are skipped."""
    run.states = {"check": "success", "prepare": "skipped", "export": "skipped"}
    run.result = result
    with pytest.raises(AirflowFailException, match="nothing was exported"):
        run.end()


def composed(run: Run) -> Any:
    dag_run = SimpleNamespace(dag_id="d", run_id="r")
    ti = SimpleNamespace(get_task_states=lambda dag_id, run_ids: {"r": run.states})
    return task().compose({"ti": ti, "dag_run": dag_run})  # type: ignore[typeddict-item,arg-type]


def test_its_pod_is_the_platforms(run: Run) -> None:
    pod = composed(run)
    assert pod.metadata.namespace == "trainyard-platform"
    assert pod.spec.service_account_name == "trainyard-upkeep"
    (container,) = pod.spec.containers
    assert container.command[3:] == ["clean-up", "--tenant", "vision", "--run", SPEC.run]
    assert container.image == "a:1"


@pytest.mark.parametrize(
    ("states", "cancelled"),
    [
        ({"train": "success", "gate": "success", "export": "success"}, False),
        ({"train": "success", "gate": "success", "export": "skipped"}, False),  # rejected
        ({"train": "failed", "gate": "upstream_failed", "export": "upstream_failed"}, False),
        ({"train": "failed", "gate": "skipped", "export": "skipped"}, True),  # marked failed in mid-training
        ({"train": "success", "gate": "skipped", "export": "skipped"}, True),  # between two tasks
    ],
)
def test_a_run_that_a_person_ended_is_called_so(run: Run, states: dict[str, str | None], cancelled: bool) -> None:
    run.states = states
    (container,) = composed(run).spec.containers
    assert (container.command[-2:] == ["--outcome", "cancelled"]) is cancelled


def test_what_the_run_came_to_is_left_for_its_note(run: Run) -> None:
    run.states = {"train": "failed"}
    run.result = {"outcome": "failed", "reason": "UserError: m.py:3: KeyError", "metrics": {}, "dataset_version": "1.0.0"}
    with pytest.raises(AirflowFailException):
        run.end()
    assert run.left == {"note": "failed: UserError: m.py:3: KeyError, dataset version 1.0.0"}


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({}, "no result"),
        ({"outcome": "cancelled", "reason": None, "metrics": {}, "model": "m", "model_version": None}, "cancelled"),
        (
            {
                "outcome": "exported",
                "metrics": {"accuracy": 0.97222, "loss": 0.1, "examples": 360},
                "model": "digits-mlp",
                "model_version": 3,
                "dataset_version": "1.1.0",
            },
            "exported: digits-mlp version 3, accuracy 0.9722, loss 0.1, dataset version 1.1.0",
        ),
    ],
)
def test_a_note_is_one_line(result: dict[str, Any], says: str) -> None:
    assert clean_up_pod.note(result) == says
