"""The commands about runs: what is asked of Airflow, what is printed, and the exit code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server, Trainyard

DAG = "train_vision_digits-mlp"
RUN_ID = "manual__2026-03-01T10:00:00+00:00"
RUNS = f"/api/v2/dags/{DAG}/dagRuns"
FORM = {"params": {"epochs": {}, "learning_rate": {}, "workers": {}, "dataset_version": {}}}
EXPORTED = {
    "outcome": "exported",
    "metrics": {"accuracy": 0.97, "loss": 0.1},
    "model": "digits-mlp",
    "model_version": 3,
    "dataset_version": "1.1.0",
}


def _run_to_the_end(shapes: Any, last: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    step, document = shapes.step, shapes.document
    return [
        document("queued", [step("check", None), step("train", None)]),
        document("running", [step("check", "success"), step("train", "queued")]),
        document("running", [step("check", "success"), step("train", "running")], progress={"step": 5, "total_steps": 10, "loss": 0.5}),
        document("running", [step("check", "success"), step("train", "running")], progress={"step": 9, "total_steps": 10, "loss": 0.2}),
        last or document("success", [step("check", "success"), step("train", "success")], result=EXPORTED),
    ]


def test_a_run_is_triggered_and_followed(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.documents = _run_to_the_end(shapes)
    server.answers["GET", f"/api/v2/dags/{DAG}/details"] = (200, FORM)
    done = trainyard("run", "digits-mlp", "--version", "1.1.0", "--set", "epochs=3", "--set", "learning_rate=0.01", "--json")
    assert done.code == 0, done.err
    assert server.bodies("POST", RUNS) == [{"logical_date": None, "partition_key": "1.1.0", "conf": {"epochs": 3, "learning_rate": 0.01}}]
    events = done.lines
    assert [event["event"] for event in events] == ["run", "step", "step", "step", "progress", "progress", "step", "end"]
    assert events[0] == {"event": "run", "run": "digits-mlp-0123456789", "dag_id": DAG, "run_id": RUN_ID, "dataset_version": "1.1.0"}
    assert [(e["step"], e["state"]) for e in events if e["event"] == "step"] == [
        ("check", "success"), ("train", "queued"), ("train", "running"), ("train", "success"),
    ]  # fmt: skip
    assert [e["loss"] for e in events if e["event"] == "progress"] == [0.5, 0.2]
    end = events[-1]
    assert (end["state"], end["outcome"], end["accuracy"], end["model"], end["model_version"]) == (
        "success",
        "exported",
        0.97,
        "digits-mlp",
        3,
    )
    assert end["steps"] == {"check": 5.0, "train": 5.0}


def test_people_see_steps_progress_and_a_table(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.documents = _run_to_the_end(shapes)
    done = trainyard("run", "vision/digits-mlp")
    assert done.code == 0, done.err
    assert server.bodies("POST", RUNS)[0]["partition_key"] == "1.1.0"  # the newest
    for words in (
        "run digits-mlp-0123456789",
        "✓ check",
        "step 5/10 (50 %)  loss 0.5000",
        "✓ train",
        "accuracy",
        "0.97",
        "digits-mlp version 3",
    ):
        assert words in done.out, words


def test_a_failed_run_says_why_and_where(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    steps = [shapes.step("train", "failed"), shapes.step("evaluate", "upstream_failed"), shapes.step("clean_up", "failed")]
    failed = shapes.document("failed", steps, result={"outcome": "failed", "reason": "Diverged: the loss is nan", "metrics": {}})
    server.documents = _run_to_the_end(shapes, failed)
    done = trainyard("run", "digits-mlp", "--json")
    assert done.code == 1
    assert done.lines[-1]["reason"] == "Diverged: the loss is nan"
    assert done.err.count("\n") == 1
    assert "run digits-mlp-0123456789 failed: Diverged: the loss is nan" in done.err
    assert "(`trainyard logs digits-mlp-0123456789`)" in done.err


def test_a_refused_run_says_why_though_no_pod_could(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    """``check`` refuses before there is a result or a log of ours: its words are in Airflow's log of the task."""
    steps = [
        shapes.step("check", "failed", **{"try": 2}),
        shapes.step("train", "upstream_failed"),
        shapes.step("clean_up", "upstream_failed"),
    ]
    server.documents = [shapes.document("failed", steps)]
    log = [{"event": "a line"}, {"event": "Task failed with exception", "error_detail": [{"exc_value": "5 slots; tenant vision has 4"}]}]
    path = f"{RUNS}/{RUN_ID}/taskInstances/check/logs/2"
    server.answers["GET", path] = (200, {"content": log})
    done = trainyard("run", "digits-mlp", "--json")
    assert (done.code, done.lines[-1]["reason"]) == (1, "check: 5 slots; tenant vision has 4")
    assert "failed: check: 5 slots; tenant vision has 4" in done.err
    assert "check: 5 slots; tenant vision has 4" in trainyard("status", "digits-mlp").out
    server.answers["GET", path] = (404, {"detail": "no log"})
    assert "it ended without a word" in trainyard("run", "digits-mlp").err


def test_a_schemas_long_complaint_is_one_line(server: Server, trainyard: Trainyard) -> None:
    text = "Invalid input for param workers: 0 is less than the minimum of 1\n\nFailed validating 'minimum' in schema:\n    {...}"
    server.answers["POST", RUNS] = (400, {"detail": text})
    assert trainyard("run", "digits-mlp").err == "trainyard: Invalid input for param workers: 0 is less than the minimum of 1\n"


def test_a_persons_word_is_the_reason(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    result = {"outcome": "failed", "reason": "Terminated", "metrics": {}}
    server.documents = [shapes.document("failed", [shapes.step("train", "failed")], result=result, note="cancelled by alice")]
    assert "cancelled by alice" in trainyard("status", "digits-mlp").out
    server.documents[0]["note"] = "a remark of somebody's"
    assert "Terminated" in trainyard("status", "digits-mlp").out


def test_a_rejected_model_is_a_good_end(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    result = {"outcome": "rejected", "reason": "accuracy 0.8 is below 0.95", "metrics": {"accuracy": 0.8}}
    server.documents = _run_to_the_end(shapes, shapes.document("success", [shapes.step("gate", "success")], result=result))
    done = trainyard("run", "digits-mlp")
    assert done.code == 0
    assert "rejected" in done.out
    assert "accuracy 0.8 is below 0.95" in done.out


def test_a_mapped_step_is_one_step(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    def shards(*states: str) -> list[dict[str, Any]]:
        return [shapes.step("shard", state, index=number) for number, state in enumerate(states)]

    server.documents = [
        shapes.document("running", shards("running", "queued")),
        shapes.document("running", shards("success", "running")),
        shapes.document("success", shards("success", "success")),
    ]
    events = trainyard("run", "digits-mlp", "--json").lines
    assert [(e["state"], e["done"], e["parts"]) for e in events if e["event"] == "step"] == [
        ("running", 0, 2), ("running", 1, 2), ("success", 2, 2),
    ]  # fmt: skip


def test_airflow_may_be_away_for_a_while(server: Server, trainyard: Trainyard, shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is restarted in mid-training: the run goes on, and so does who follows it."""
    from trainyard.cli.client import Client
    from trainyard.errors import UnavailableError

    server.documents = _run_to_the_end(shapes)
    reached, count = Client.run, 0

    def sometimes(self: Client, *ids: str) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count in (2, 3):
            raise UnavailableError("cannot reach it")
        return reached(self, *ids)

    monkeypatch.setattr(Client, "run", sometimes)
    done = trainyard("run", "digits-mlp", "--json")
    assert done.code == 0
    notes = [event["text"] for event in done.lines if event["event"] == "note"]
    assert notes == ["cannot reach it; the run goes on, looking again", "Airflow answers again"]


def test_without_following_the_command_ends_at_once(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.documents = _run_to_the_end(shapes)[:1]
    done = trainyard("run", "digits-mlp", "--no-follow", "--json")
    assert (done.code, done.lines) == (
        0, [{"event": "run", "run": "digits-mlp-0123456789", "dag_id": DAG, "run_id": RUN_ID, "dataset_version": "1.1.0"}],
    )  # fmt: skip


def test_a_pipeline_that_airflow_has_yet_to_read_is_waited_for(
    server: Server, trainyard: Trainyard, shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.cli.client.time.sleep", lambda _: None)
    server.documents = _run_to_the_end(shapes)
    server.pending = [["digits-mlp"], ["digits-mlp"]]
    done = trainyard("run", "digits-mlp", "--json")
    assert done.code == 0
    assert done.err == "waiting until Airflow has read the pipeline `digits-mlp`\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["digits-mpl"], "no pipeline `digits-mpl`; did you mean `digits-mlp`?"),
        (["other"], "no pipeline `other`; there are: digits-mlp"),
        (["digits-mlp", "--version", "1.0.9"], "dataset `digits` has no version `1.0.9`; did you mean `1.0.0`?"),
        (["digits-mlp", "--set", "epoch=3"], "no parameter `epoch`; did you mean `epochs`?"),
        (["digits-mlp", "--set", "epochs"], "write it as key=value"),
        (["digits-mlp", "--set", "epochs=1", "--set", "epochs=2"], "`epochs` is given twice"),
        (["digits-mlp", "--set", "dataset_version=1.0.0"], "no parameter `dataset_version`"),
        (["digits-mlp", "--from", "."], "names no package"),
        (["digits-mlp", "--version", ""], "--version is empty"),
        (["digits-mlp", "--local", "--set", "workers=3"], "one process, without `workers`"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(server: Server, trainyard: Trainyard, words: list[str], says: str) -> None:
    server.answers["GET", f"/api/v2/dags/{DAG}/details"] = (200, FORM)
    done = trainyard("run", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert server.bodies("POST", RUNS) == []


@pytest.mark.parametrize("words", [("run", "broken"), ("run", "vision/broken"), ("publish", "broken"), ("models", "broken")])
def test_a_pipeline_whose_file_is_broken_says_what_is_wrong_with_it(server: Server, trainyard: Trainyard, words: tuple[str, ...]) -> None:
    server.problems = ["config/datasets/broken.yaml:1: x: wrong", "config/pipelines/broken.yaml:3: colour = red: unknown key"]
    done = trainyard(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"trainyard: pipeline `{words[1]}` is not there while its file is broken:",
        "trainyard: config/pipelines/broken.yaml:3: colour = red: unknown key",
    ]


def test_what_airflow_refuses_is_told_in_its_words(server: Server, trainyard: Trainyard) -> None:
    server.answers["POST", RUNS] = (400, {"detail": "Invalid input for param workers: 0 is less than the minimum of 1"})
    done = trainyard("run", "digits-mlp")
    assert (done.code, done.err) == (2, "trainyard: Invalid input for param workers: 0 is less than the minimum of 1\n")
    server.answers["POST", RUNS] = (403, {"detail": "Forbidden"})
    assert trainyard("run", "digits-mlp").code == 4
    server.answers["POST", RUNS] = (503, {"detail": "database is locked"})
    assert trainyard("run", "digits-mlp").code == 3
    server.answers["POST", RUNS] = (422, {"detail": [{"loc": ["body", "conf"], "msg": "not a dict"}]})
    assert trainyard("run", "digits-mlp").err == "trainyard: body.conf: not a dict\n"


def test_a_version_that_is_not_released_is_not_the_newest(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    later = {"version": "2.0.0", "released": "2999-01-01T00:00:00+00:00"}
    server.documents = _run_to_the_end(shapes)
    server.pipelines = [shapes.pipeline("digits-mlp", "vision", versions=[*shapes.VERSIONS, later])]
    trainyard("run", "digits-mlp")
    server.pipelines = [shapes.pipeline("digits-mlp", "vision", versions=[later])]
    trainyard("run", "digits-mlp")
    assert [body["partition_key"] for body in server.bodies("POST", RUNS)] == ["1.1.0", None]


def test_a_paused_pipeline_is_not_run(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.pipelines = [shapes.pipeline("digits-mlp", "vision", paused=True)]
    done = trainyard("run", "digits-mlp")
    assert done.code == 4
    assert "paused" in done.err
    assert server.bodies("POST", RUNS) == []


def test_two_tenants_pipelines_of_one_name_are_told_apart(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.pipelines = [shapes.pipeline("digits", "vision"), shapes.pipeline("digits", "tabular")]
    done = trainyard("run", "digits")
    assert (done.code, "vision/digits, tabular/digits" in done.err) == (2, True)


# ------------------------------------------------------------------------------------------------------- packages of one's own
OWN = "train_tabular_digits-own"


def _own(server: Server, shapes: Any, folder: Path) -> Path:
    server.pipelines = [shapes.pipeline("digits-own", "tabular", package="mine", build="mine.model:build")]
    package = folder / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.py").write_text("def build(config): ...\n")
    return package


def test_a_run_publishes_the_package_first(server: Server, trainyard: Trainyard, shapes: Any, tmp_path: Path) -> None:
    _own(server, shapes, tmp_path / "work")
    server.documents = [shapes.document("success", [], dag_id=OWN, result=EXPORTED)]
    server.answers["POST", f"/trainyard/packages/{OWN}"] = (200, {"package": "mine", "sha256": "a" * 64, "changed": True, "size": 10})
    done = trainyard("run", "digits-own", "--json")
    assert done.code == 0, done.err
    assert "published mine aaaaaaaaaaaa" in done.err
    posts = [path for method, path, _ in server.asked if method == "POST"]
    assert posts == [f"/trainyard/packages/{OWN}", f"/api/v2/dags/{OWN}/dagRuns"]
    assert trainyard("run", "digits-own", "--no-publish", "--json").code == 0
    assert len(server.bodies("POST", f"/trainyard/packages/{OWN}")) == 1


def test_a_colleague_without_the_source_trains_what_was_published(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.pipelines = [shapes.pipeline("digits-own", "tabular", package="mine", build="mine.model:build")]
    server.documents = [shapes.document("success", [], dag_id=OWN, result=EXPORTED)]
    assert trainyard("run", "digits-own").code == 0


@pytest.mark.parametrize(
    ("source", "says"), [("def build(config:\n", "mine/model.py:1:"), ("def other(): ...\n", "there is no `build` in it")]
)
def test_code_that_cannot_work_is_found_before_anything_starts(
    server: Server, trainyard: Trainyard, shapes: Any, tmp_path: Path, source: str, says: str
) -> None:
    (_own(server, shapes, tmp_path / "work") / "model.py").write_text(source)
    for words in (("run", "digits-own"), ("publish", "digits-own"), ("publish", "mine"), ("publish",), ("run", "digits-own", "--local")):
        done = trainyard(*words)
        assert (done.code, done.out) == (2, ""), words
        assert says in done.err
        assert not [path for method, path, _ in server.asked if method == "POST"]


def test_publish_sends_the_wheel_and_its_digest(server: Server, trainyard: Trainyard, shapes: Any, tmp_path: Path) -> None:
    from trainyard.cli import wheel

    package = _own(server, shapes, tmp_path / "work")
    server.answers["POST", f"/trainyard/packages/{OWN}"] = (200, {"package": "mine", "sha256": "a" * 64, "changed": True, "size": 10})
    for words in (("digits-own",), ("tabular/digits-own",), (str(package),), (str(package.parent),), ()):
        server.asked.clear()
        assert trainyard("publish", *words, "--json").lines[0]["files"] == 2, words
        assert server.bodies("POST", f"/trainyard/packages/{OWN}") == [wheel.build(package).data]
    assert hashlib.sha256(wheel.build(package).data).hexdigest() == wheel.build(package).sha256


@pytest.mark.parametrize(
    ("words", "says"),
    [("digits-mlp", "there is nothing to publish"), ("nothing", "no pipeline `nothing`"), ("./nothing", "neither a pipeline nor a folder")],
)
def test_what_cannot_be_published(server: Server, trainyard: Trainyard, words: str, says: str) -> None:
    done = trainyard("publish", words)
    assert (done.code, says in done.err) == (2, True), done.err


def test_a_package_that_no_pipeline_names_says_what_to_write(server: Server, trainyard: Trainyard, tmp_path: Path) -> None:
    (tmp_path / "work" / "mine").mkdir()
    (tmp_path / "work" / "mine" / "__init__.py").touch()
    done = trainyard("publish", "mine")
    assert (done.code, "write `package: mine`" in done.err) == (2, True)


# --------------------------------------------------------------------------------------------------------- after it was started
def test_status_shows_the_board(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    rows = [shapes.document("success", [], result=EXPORTED), shapes.document("running", [], run="digits-mlp-abc")]
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
