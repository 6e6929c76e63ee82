"""The ways in which a run begins: the form, a backfill over dataset versions, a scheduled tick; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.platform import Platform, add_pipeline, until

DAG = "train_vision_digits-mlp"


def runs_of(platform: Platform, dag_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.api("GET", f"/dags/{dag_id}/dagRuns", params={"limit": 100}).json()["dag_runs"]
    return found


def champion_of(platform: Platform, pipeline: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = platform.trainyard("models", "--json").document["models"]
    return next((item["champion"] for item in found if item["pipeline"] == pipeline), None)


def test_the_form_changes_the_gang_and_its_slots(platform: Platform) -> None:
    conf = {"dataset_version": "1.0.0", "epochs": 2, "workers": 2, "parameter_servers": 1, "batch_size": 16, "learning_rate": 0.01}
    made = platform.api("POST", f"/dags/{DAG}/dagRuns", json={"logical_date": None, "conf": conf}, user="alice")
    assert made.status_code == 200, made.text
    run_id = made.json()["dag_run_id"]
    end = platform.wait_for_end(f"{DAG}/{run_id}")
    assert end["state"] == "success", end
    assert end["dataset_version"] == "1.0.0"
    train = platform.api("GET", f"/dags/{DAG}/dagRuns/{run_id}/taskInstances/train").json()
    assert train["pool"] == "tenant-vision"
    assert train["pool_slots"] == 4, "2 workers + 1 parameter server + chief"
    replicas = {r["replica"] for r in platform.trainyard("logs", end["run"], "--list", "--json").document["replicas"]}
    assert {"worker-0", "worker-1", "ps-0"} <= replicas
    assert "ps-1" not in replicas


def test_a_backfill_trains_each_version_once(platform: Platform) -> None:
    # The champion of the newest version is there first: a run over an older one must not take its place.
    before = champion_of(platform, "digits-mlp")
    newest = before["version"] if before and before["dataset_version"] == "1.1.0" else platform.run("digits-mlp")["model_version"]
    words = ("backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0", "--set", "epochs=5", "--json")
    said = platform.trainyard(*words, "--again", "completed").document
    assert said["versions"] == ["1.0.0", "1.1.0"]

    def backfilled() -> list[dict[str, Any]]:
        return [run for run in runs_of(platform, DAG) if run["run_type"] == "backfill"]

    until(
        lambda: len(backfilled()) == 2 and all(r["state"] in ("success", "failed") for r in backfilled()),
        240,
        "both versions ran",
        every_s=3,
    )
    assert {run["partition_key"]: run["state"] for run in backfilled()} == {"1.0.0": "success", "1.1.0": "success"}
    champion = champion_of(platform, "digits-mlp")
    assert champion is not None
    assert champion["dataset_version"] == "1.1.0"
    assert champion["version"] >= newest
    again = platform.trainyard(*words).document
    assert again["versions"] == [], "every version was run already"


@pytest.mark.long  # ticks as such: tests/dags/test_airflow_runs.py
def test_a_new_file_s_tick_takes_the_newest_version_and_the_next_one_has_nothing_to_do(platform: Platform) -> None:
    dag = "train_vision_digits-tick"
    add_pipeline(platform.config, "digits-tick", {"schedule": "* * * * *"})
    until(lambda: platform.api("GET", f"/dags/{dag}").status_code == 200, 120, "the new file's DAG is there, without a restart", every_s=2)

    def ticks() -> list[dict[str, Any]]:
        return sorted((run for run in runs_of(platform, dag) if run["run_type"] == "scheduled"), key=lambda run: run["run_after"])

    def all_ended() -> bool:
        return all(tick["state"] in ("success", "failed") for tick in ticks())

    def outcomes() -> list[str | None]:
        ended = [platform.status(f"{dag}/{tick['dag_run_id']}") for tick in ticks() if tick["state"] in ("success", "failed")]
        return [(document["result"] or {}).get("outcome") for document in ended]

    def pause(paused: bool) -> None:
        platform.api("PATCH", f"/dags/{dag}", json={"is_paused": paused}).raise_for_status()

    try:
        until(lambda: "unchanged" in outcomes() and all_ended(), 280, lambda: f"a tick had nothing to do: {ticks()}", every_s=3)
    finally:
        pause(True)
        while not all_ended():  # one that began just now would be frozen half-way
            pause(False)
            until(all_ended, 120, "the last tick has ended", every_s=1)
            pause(True)
    assert outcomes()[0] == "exported"
    assert all(tick["partition_key"] == "1.1.0" for tick in ticks())


def test_what_is_refused_starts_nothing(platform: Platform, tmp_path: Path) -> None:
    before = {run["dag_run_id"] for run in runs_of(platform, DAG)}
    for words, said in (
        (("run", "digits-mlp", "--set", "workers=0"), "workers"),
        (("run", "digits-mlp", "--set", "epochs=many"), "epochs"),
        (("run", "digits-mlp", "--set", "epoch=3"), "epochs"),
        (("run", "digits-mlp", "--version", "9.9.9"), "1.1.0"),
        (("run", "digits-mpl"), "digits-mlp"),
    ):
        result = platform.trainyard(*words)
        assert result.code == 2, f"{words}: {result.code} {result.out} {result.err}"
        assert said in result.err
        assert "Traceback" not in result.err
        assert len(result.err.strip().splitlines()) <= 3, result.err
    refused = platform.api("POST", f"/dags/{DAG}/dagRuns", json={"logical_date": None, "conf": {"workers": 0}})
    assert refused.status_code == 400
    refused = platform.api("POST", f"/dags/{DAG}/dagRuns", json={"logical_date": None, "partition_key": "9.9.9"})
    assert refused.status_code == 400
    assert "1.0.0, 1.1.0" in refused.text
    assert {run["dag_run_id"] for run in runs_of(platform, DAG)} == before

    package = tmp_path / "digits_model"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "model.py").write_text("def build(config)\n    return None\n", encoding="utf-8")
    result = platform.trainyard("run", "digits-own", "--from", str(package), user="carol")
    assert result.code == 2
    assert "model.py" in result.err
    assert "line 1" in result.err or ":1" in result.err
    assert platform.pods() == []


def test_a_sum_that_no_field_shows_is_refused_by_check_alone(platform: Platform) -> None:
    # Each is within its own limit; together they are 2 × 1 + 4 × 1 + 1 = 7 of 6 slots.
    made = platform.api("POST", f"/dags/{DAG}/dagRuns", json={"logical_date": None, "conf": {"workers": 2, "parameter_servers": 4}})
    assert made.status_code == 200, made.text
    run_id = made.json()["dag_run_id"]
    end = platform.wait_for_end(f"{DAG}/{run_id}", within_s=90)
    states = {row["step"]: row["state"] for row in end["steps"]}
    assert end["state"] == "failed"
    assert states.pop("check") == "failed"
    assert set(states.values()) == {"upstream_failed"}, "not even the teardown began"
    log = platform.api("GET", f"/dags/{DAG}/dagRuns/{run_id}/taskInstances/check/logs/1", params={"full_content": True}).text
    assert "7 slots" in log
    assert "tenant vision has 6" in log


def test_a_stranger_sees_nothing(platform: Platform) -> None:
    seen = platform.trainyard("status", "--json", user="carol").document
    assert not any(run["tenant"] == "vision" for run in seen["runs"])
    result = platform.trainyard("run", "digits-mlp", user="carol")
    assert result.code in (2, 4)
    assert "digits-mlp" in result.err
