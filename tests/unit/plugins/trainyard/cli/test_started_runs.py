"""The commands about runs that were started: `status`, `cancel`, `retry`; and `backfill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server, Trainyard

DAG = "train_vision_digits-mlp"
RUN_ID = "manual__2026-03-01T10:00:00+00:00"
RUNS = f"/api/v2/dags/{DAG}/dagRuns"


def test_status_shows_the_board(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    rows = [shapes.document("success", [], result=shapes.EXPORTED), shapes.document("running", [], run="digits-mlp-abc")]
    server.answers["GET", "/trainyard/runs"] = (200, {"runs": rows})
    done = trainyard("status")
    assert done.code == 0
    assert ("0.97" in done.out, "exported" in done.out, "digits-mlp-abc" in done.out) == (True, True, True)
    assert trainyard("status", "--json").lines == [{"runs": rows}]
    server.answers["GET", "/trainyard/runs"] = (200, {"runs": []})
    assert "no runs yet" in trainyard("status").out


def test_status_shows_one_run(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.documents = [shapes.document("running", [shapes.step("train", "running", **{"try": 2})], progress={"step": 7, "loss": 0.25})]
    done = trainyard("status", "digits-mlp")
    assert ("step 7  loss 0.2500" in done.out, "train" in done.out, "asked for by alice" in done.out) == (True, True, True)
    assert trainyard("status", "digits-mlp", "--json").lines == server.documents


def test_cancel_fails_the_run_and_waits_for_its_end(
    server: Server, trainyard: Trainyard, shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.cli.commands.runs.time.sleep", lambda _: None)
    server.documents = [
        shapes.document("running", [shapes.step("train", "running")]),
        shapes.document("failed", [shapes.step("train", "failed"), shapes.step("clean_up", "running")]),
        shapes.document("failed", [shapes.step("train", "failed"), shapes.step("clean_up", "failed")]),
    ]
    server.answers["PATCH", f"{RUNS}/{RUN_ID}"] = (200, {})
    done = trainyard("cancel", "digits-mlp")
    assert done.code == 0, done.err
    assert server.bodies("PATCH", f"{RUNS}/{RUN_ID}") == [{"state": "failed", "note": "cancelled by alice"}]
    assert len(server.documents) == 1  # it looked until clean_up had ended
    assert trainyard("cancel", "digits-mlp").code == 2  # it has ended already


def test_retry_clears_what_did_not_succeed_and_what_was_left_out(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    """A cancelled run's later steps are skipped: without them the run would end green, without a model."""
    step = shapes.step
    steps = [
        step("check", "success"),
        step("shard", "success", index=0),
        step("shard", "failed", index=1),
        step("export", "skipped"),
        step("gate", None),
    ]
    server.documents = [shapes.document("failed", steps)]
    path = f"/api/v2/dags/{DAG}/clearTaskInstances"
    server.answers["POST", path] = (200, {"task_instances": [{}, {}, {}]})
    server.answers["PATCH", f"{RUNS}/{RUN_ID}"] = (200, {})
    done = trainyard("retry", "digits-mlp", "--no-follow", "--json")
    assert done.code == 0, done.err
    assert server.bodies("PATCH", f"{RUNS}/{RUN_ID}") == [{"note": "tried again by alice"}]
    (body,) = server.bodies("POST", path)
    assert body == {
        "dry_run": False, "dag_run_id": RUN_ID, "task_ids": ["export", "gate", "shard"],
        "only_failed": False, "include_downstream": True, "reset_dag_runs": True,
    }  # fmt: skip


@pytest.mark.parametrize("state", ["success", "running", "queued"])
def test_only_a_failed_run_is_tried_again(server: Server, trainyard: Trainyard, shapes: Any, state: str) -> None:
    server.documents = [shapes.document(state, [])]
    done = trainyard("retry", "digits-mlp")
    assert (done.code, "only a failed run" in done.err) == (2, True)


def test_a_backfill_waits_for_a_pipeline_that_airflow_is_about_to_read(
    server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.cli.client.time.sleep", lambda _: None)
    server.answers["POST", "/api/v2/backfills/dry_run"] = (200, {"backfills": []})
    server.pending = [["digits-mlp"], ["digits-mlp"]]
    done = trainyard("backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0")
    assert (done.code, done.err) == (0, "waiting until Airflow has read the pipeline `digits-mlp`\n")
    assert server.pending == []


def test_a_backfill_is_from_release_to_release(server: Server, trainyard: Trainyard) -> None:
    plan = {"backfills": [{"partition_key": "1.0.0"}, {"partition_key": "1.1.0"}]}
    server.answers["POST", "/api/v2/backfills/dry_run"] = (200, plan)
    server.answers["POST", "/api/v2/backfills"] = (200, {"id": 7})
    assert trainyard("backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0", "--json").lines == [
        {"backfill": 7, "versions": ["1.0.0", "1.1.0"]}
    ]
    (body,) = server.bodies("POST", "/api/v2/backfills")
    assert (body["from_date"], body["to_date"]) == ("2020-01-01T00:00:00+00:00", "2020-02-01T00:00:00+00:00")
    assert (body["dag_id"], body["reprocess_behavior"], body["max_active_runs"]) == (DAG, "none", 1)
    trainyard("backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0", "--dry-run")
    assert len(server.bodies("POST", "/api/v2/backfills")) == 1
    server.answers["POST", "/api/v2/backfills/dry_run"] = (200, {"backfills": []})
    assert "nothing to do" in trainyard("backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0").out
    assert len(server.bodies("POST", "/api/v2/backfills")) == 1
    assert trainyard("backfill", "digits-mlp", "--from", "1.1.0", "--to", "1.0.0").code == 2
    assert trainyard("backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0", "--again", "all").code == 2
