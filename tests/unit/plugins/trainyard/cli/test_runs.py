"""`run` and what it follows: what is asked of Airflow, what is printed, and the exit code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server, Trainyard

DAG = "train_vision_digits-mlp"
RUN_ID = "manual__2026-03-01T10:00:00+00:00"
RUNS = f"/api/v2/dags/{DAG}/dagRuns"
FORM = {"params": {"epochs": {}, "learning_rate": {}, "workers": {}, "dataset_version": {}}}


def _run_to_the_end(shapes: Any, last: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    step, document = shapes.step, shapes.document
    return [
        document("queued", [step("check", None), step("train", None)]),
        document("running", [step("check", "success"), step("train", "queued")]),
        document("running", [step("check", "success"), step("train", "running")], progress={"step": 5, "total_steps": 10, "loss": 0.5}),
        document("running", [step("check", "success"), step("train", "running")], progress={"step": 9, "total_steps": 10, "loss": 0.2}),
        last or document("success", [step("check", "success"), step("train", "success")], result=shapes.EXPORTED),
    ]


def test_a_run_is_triggered_and_followed(server: Server, trainyard: Trainyard, shapes: Any) -> None:
    server.documents = _run_to_the_end(shapes)
    server.answers["GET", f"/api/v2/dags/{DAG}/details"] = (200, FORM)
    done = trainyard("run", "digits-mlp", "--version", "1.1.0", "--set", "epochs=3", "--set", "learning_rate=0.01", "--json")
    assert done.code == 0, done.err
    (body,) = server.bodies("POST", RUNS)
    assert re.fullmatch(r"manual__20[0-9T:.+-]+__1\.1\.0__[0-9a-f]{8}", body.pop("dag_run_id"))
    assert body == {"logical_date": None, "partition_key": "1.1.0", "conf": {"epochs": 3, "learning_rate": 0.01}}
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
