"""What a run's document says, and which run a person's words mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trainyard.contract import keys, names

if TYPE_CHECKING:
    from conftest import World

VISION = "train_vision_digits-mlp"


def test_a_run_is_told_whole(world: World) -> None:
    name = world.airflow.add(VISION, "manual__1", partition_key=None)
    world.airflow.steps["manual__1"] = [{"step": "train", "index": None, "state": "running", "try": 1, "start": None, "end": None}]
    store = world.store()
    store.put_json(keys.spec(name), {"dataset": {"version": "1.1.0"}})
    store.put_json(keys.progress(name), {"step": 10, "loss": 0.5})
    store.put_json(keys.generation(name), {"generation": 2})
    store.put(f"{keys.logs(name, 'chief-0')}a/00000000.log", b"x")
    document = world.ask("alice", "GET", f"/runs/{VISION}/manual__1").json()
    assert document["run"] == name
    assert (document["dataset"], document["dataset_version"], document["state"]) == ("digits", "1.1.0", "running")
    assert document["progress"] == {"step": 10, "loss": 0.5}
    assert (document["generation"], document["replicas"], document["result"]) == (2, ["chief-0"], None)
    assert document["steps"] == world.airflow.steps["manual__1"]


def test_a_run_before_its_first_pod_is_told_too(world: World) -> None:
    world.airflow.add(VISION, "before", "queued", start=None, seconds=None)
    document = world.ask("alice", "GET", f"/runs/{VISION}/before").json()
    assert (document["progress"], document["generation"], document["replicas"], document["steps"]) == (None, None, [], [])


@pytest.mark.parametrize(
    ("state", "outcome", "shown"),
    [
        ("success", "exported", True),
        ("success", "rejected", True),
        ("failed", "failed", True),
        ("running", "failed", False),
        ("success", "failed", False),
    ],
)
def test_a_result_of_an_earlier_try_is_not_told(world: World, state: str, outcome: str, shown: bool) -> None:
    name = world.airflow.add(VISION, "r1", state)
    world.store().put_json(keys.run_result(name), {"outcome": outcome, "metrics": {"accuracy": 0.9}})
    result = world.ask("alice", "GET", f"/runs/{VISION}/r1").json()["result"]
    assert (result is not None) == shown
    assert (world.ask("alice", "GET", "/runs").json()["runs"][0]["result"] is not None) == shown


def test_a_run_that_is_not_there(world: World) -> None:
    answer = world.ask("alice", "GET", f"/runs/{VISION}/nothing")
    assert (answer.status_code, answer.json()["detail"]) == (404, "pipeline `digits-mlp` has no run `nothing`")


def test_the_board_goes_on_when_a_tenants_store_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainyard.errors import UnavailableError
    from trainyard.store import Store

    def away(*_: Any) -> None:
        raise UnavailableError("S3 does not answer")

    world.airflow.add(VISION, "r1", "success")
    monkeypatch.setattr(Store, "get_json", away)
    (row,) = world.ask("alice", "GET", "/runs").json()["runs"]
    assert (row["run_id"], row["result"], row["store"]) == ("r1", None, "S3 does not answer")
    assert world.ask("alice", "GET", f"/runs/{VISION}/r1").status_code == 503


def test_the_board_of_one_pipeline(world: World) -> None:
    world.airflow.add(VISION, "r1", "success")
    world.airflow.add("train_vision_mnist-cnn", "r2", "success")
    for word in ("digits-mlp", "vision/digits-mlp", VISION):
        assert [row["run_id"] for row in world.ask("alice", "GET", "/runs", params={"pipeline": word}).json()["runs"]] == ["r1"]
    assert world.ask("alice", "GET", "/runs", params={"pipeline": "nothing"}).status_code == 404


def test_the_words_that_mean_a_run(world: World) -> None:
    first = world.airflow.add(VISION, "manual__2026-03-01T10:00:00+00:00", "success")
    second = world.airflow.add(VISION, "manual__2", "running")
    meant = {
        "digits-mlp": second,
        "vision/digits-mlp": second,
        VISION: second,
        first: first,
        first[:-4]: first,
        f"{VISION}/manual__2": second,
        "manual__2026-03-01T10:00:00+00:00": first,
    }
    for words, name in meant.items():
        assert world.ask("alice", "GET", "/resolve", params={"run": words}).json()["run"] == name, words


def test_words_that_mean_several_runs_or_none(world: World) -> None:
    assert world.ask("alice", "GET", "/resolve", params={"run": "digits-mlp"}).json()["detail"] == "pipeline `digits-mlp` has no runs yet"
    for number in range(40):  # of forty hashes two begin with the same of sixteen digits
        world.airflow.add(VISION, f"r{number}")
    starts = {names.run_name("digits-mlp", VISION, f"r{number}")[: len("digits-mlp-x")] for number in range(40)}
    answers = {start: world.ask("alice", "GET", "/resolve", params={"run": start}) for start in starts}
    assert any(answer.status_code == 400 and "means" in answer.json()["detail"] for answer in answers.values())
    assert world.ask("alice", "GET", "/resolve", params={"run": "digits-mlp-zzz"}).status_code == 404


def test_a_broken_file_takes_nothing_from_other_tenants(world: World) -> None:
    assert world.ask("alice", "GET", "/pipelines").status_code == 200
    (world.config / "pipelines" / "digits-own.yaml").write_text("tenant: tabular\nnonsense: 1\n")
    assert {p["pipeline"] for p in world.ask("alice", "GET", "/pipelines").json()["pipelines"]} == {"digits-mlp", "mnist-cnn"}
    assert world.ask("carol", "GET", "/pipelines").json()["pipelines"] == []


def test_a_pipeline_tells_what_a_run_needs_to_know(world: World) -> None:
    (own,) = world.ask("carol", "GET", "/pipelines").json()["pipelines"]
    assert (own["dag_id"], own["package"], own["build"]) == ("train_tabular_digits-own", "digits_model", "digits_model.model:build")
    assert [v["version"] for v in own["versions"]] == ["1.0.0", "1.1.0"]
    assert own["versions"][0]["released"] == "2026-01-01T00:00:00+00:00"
    assert own["paused"] is False
