"""Which runs are strays: kinds, grace, whose they are; and an Airflow that does not answer in full judges nothing."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from trainyard.errors import UnavailableError
from trainyard.upkeep.reaping.judging import GRACE, Judgement, RunState, judge
from trainyard.upkeep.reaping.seen import Root

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
LONG_AGO = NOW - datetime.timedelta(hours=2)
JUST_NOW = NOW - GRACE + datetime.timedelta(seconds=1)


def root(run: str = "r-1", **fields: object) -> Root:
    made = Root("Job", f"{run}-g1-chief", f"uid-{run}", "vision", LONG_AGO, "ours", run, "train_vision_p", f"manual__{run}")
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]


def judged(*roots: Root, **states: RunState | None) -> Judgement:
    """With Airflow's word by run id; a run that is not named is one nobody may ask for."""
    by_id = {f"manual__{name.replace('_', '-')}": state for name, state in states.items()}
    return judge(roots, "ours", lambda dag_id, run_id: by_id[run_id], NOW)


@pytest.mark.parametrize("state", ["queued", "running", "a state of a later Airflow"])
def test_a_run_that_airflow_has_not_ended_is_live(state: str) -> None:
    found = judged(root(), r_1=RunState(state, None))
    assert (found.live, found.strays) == (1, [])


@pytest.mark.parametrize("state", ["success", "failed"])
def test_what_a_run_left_that_ended_is_a_stray(state: str) -> None:
    (stray,) = judged(root(), r_1=RunState(state, LONG_AGO)).strays
    assert (stray.tenant, stray.run, stray.reason, stray.roots) == ("vision", "r-1", "ended", {"uid-r-1": "Job r-1-g1-chief"})
    assert f"ended as {state} at 2026-03-01T10:00:00+00:00" in stray.said


def test_what_airflow_has_no_run_of_is_a_stray() -> None:
    (stray,) = judged(root(), r_1=None).strays
    assert (stray.reason, stray.said) == ("absent", "Airflow has no run manual__r-1 of train_vision_p")


def test_the_grace_time_counts_from_the_newest_object_and_from_the_runs_end() -> None:
    young = root("r-2", uid="u", created=JUST_NOW)
    found = judged(root("r-1"), root("r-2"), young, root("r-3"), r_1=RunState("success", JUST_NOW), r_2=None, r_3=RunState("failed", None))
    assert found.young == 2
    assert [stray.run for stray in found.strays] == ["r-3"], "a run without an end is as old as its objects"


@pytest.mark.parametrize("instance", ["another", "", None])
def test_another_airflows_is_not_even_asked_about(instance: str | None) -> None:
    found = judged(root(instance=instance))
    assert (found.foreign, found.strays) == (1, [])


@pytest.mark.parametrize("missing", ["run", "dag_id", "run_id"])
def test_what_says_of_no_run_is_named_and_left(missing: str) -> None:
    found = judged(dataclasses.replace(root(), **{missing: None}))  # type: ignore[arg-type]
    assert found.unnamed == ["Job r-1-g1-chief of tenant vision"]
    assert found.strays == []


def test_a_run_is_asked_for_once() -> None:
    asked: list[tuple[str, str]] = []

    def ask(dag_id: str, run_id: str) -> None:
        asked.append((dag_id, run_id))

    found = judge([root(uid=str(n)) for n in range(5)], "ours", ask, NOW)
    assert asked == [("train_vision_p", "manual__r-1")]
    assert len(found.strays[0].roots) == 5


def test_a_living_run_of_the_same_label_protects() -> None:
    other = root(uid="u2", run_id="manual__r-2")
    found = judged(root(), other, r_1=None, r_2=RunState("running", None))
    assert found.strays == []


def test_the_same_label_of_two_tenants_is_two_runs() -> None:
    there = root(uid="u2", tenant="tabular", dag_id="train_tabular_p", run_id="manual__r-2")
    found = judged(root(), there, r_1=RunState("running", None), r_2=None)
    assert [(stray.tenant, stray.run) for stray in found.strays] == [("tabular", "r-1")]


def test_an_answer_that_does_not_come_is_no_judgement_of_the_others() -> None:
    def ask(dag_id: str, run_id: str) -> RunState | None:
        if run_id == "manual__r-2":
            raise UnavailableError("Airflow does not answer")
        return None

    with pytest.raises(UnavailableError):
        judge([root("r-1"), root("r-2")], "ours", ask, NOW)
