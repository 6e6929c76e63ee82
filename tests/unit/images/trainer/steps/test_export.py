"""Export: one version or none, whatever dies when; the champion is the best placed; nothing is overwritten."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.images.trainer.conftest import MakeContext
from trainer.errors import DataError, Skipped
from trainer.steps import export, gate
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.objects import Bucket, File

MODEL = "digits-mlp"
CONTENT = {
    "saved_model.pb": b"graph" * 100,
    "variables/variables.index": b"index",
    "variables/variables.data-00000-of-00001": b"weights" * 1000,
}


def accepted(context: Context, accuracy: float = 0.95, verdict: str = "accepted") -> Context:
    """Leaves what train, evaluate and gate leave before an export."""
    run = context.spec.run
    markers.write(context.data, keys.step_marker(run, "train"), "train", "t", values={"checkpoint_step": 90})
    values = {"metrics": {"accuracy": accuracy, "loss": 0.2}, "examples": 240, "checkpoint_step": 90}
    markers.write(context.data, keys.step_marker(run, "evaluate"), "evaluate", "e", values=values)
    for name, data in CONTENT.items():
        context.data.put(keys.saved_model(run) + name, data)
    files = [File.of(keys.saved_model(run) + name, data) for name, data in CONTENT.items()]
    markers.write(context.data, keys.saved_model_marker(run), "saved_model", "s", files=files)
    markers.write(context.data, keys.step_marker(run, gate.STEP), gate.STEP, "g", values={"verdict": verdict, "reason": "because"})
    return context


def visible(models: Bucket) -> dict[int, markers.Marker]:
    """Versions as a reader sees them: those with a marker. Each of them must be whole, byte by byte."""
    found = {}
    for key, _, _ in models.list(f"{MODEL}/"):
        parts = key.split("/")
        if len(parts) == 3 and parts[2] == "marker.json":
            marker = markers.read(models, key)
            assert marker is not None
            assert {file.key.removeprefix(f"{MODEL}/{parts[1]}/") for file in marker.files} == set(CONTENT)
            for file in marker.files:
                assert File.of(file.key, models.get(file.key) or b"") == file
            found[int(parts[1])] = marker
    return found


def champion(context: Context) -> dict[str, Any] | None:
    return context.models.get_json(keys.champion(MODEL))


def test_a_model_is_exported(make_context: MakeContext) -> None:
    context = accepted(make_context())
    export.run(context)
    marker = visible(context.models)[1]
    assert {file.key: context.models.get(file.key) for file in marker.files} == {
        f"{MODEL}/1/{name}": data for name, data in CONTENT.items()
    }
    expected = {
        "model": MODEL,
        "version": 1,
        "run": context.spec.run,
        "dataset_version": "1.0.0",
        "metrics": {"accuracy": 0.95, "loss": 0.2},
    }
    assert expected.items() <= marker.values.items()
    pointer = champion(context)
    assert pointer is not None
    assert (pointer["version"], pointer["run"], pointer["released"]) == (1, context.spec.run, "2026-01-01T00:00:00+00:00")
    assert len(pointer["files_sha256"]) == 64
    result = context.data.get_json(keys.run_result(context.spec.run))
    assert result is not None
    assert (result["outcome"], result["model"], result["model_version"], result["metrics"]["accuracy"]) == ("exported", MODEL, 1, 0.95)
    step = markers.read(context.data, keys.step_marker(context.spec.run, "export"))
    assert step is not None
    assert step.values == {"model": MODEL, "version": 1, "champion": True, "reason": "version 1 is the champion"}


def test_a_rejected_model_is_not(make_context: MakeContext) -> None:
    context = accepted(make_context(), verdict="rejected")
    with pytest.raises(Skipped, match="the gate rejected the model: because"):
        export.run(context)
    assert list(context.models.list("")) == []


def test_repeating_changes_nothing(make_context: MakeContext) -> None:
    context = accepted(make_context())
    export.run(context)
    before = {key: context.models.get(key) for key, _, _ in context.models.list("")}
    export.run(context)
    # Also when only the step's own marker is lost.
    context.data.delete(keys.step_marker(context.spec.run, "export"))
    export.run(make_context())
    assert {key: context.models.get(key) for key, _, _ in context.models.list("")} == before


class Killed(BaseException):
    """Stands for the process' end: nothing of ours catches it."""


def _kill_before_put(context: Context, k: int) -> Callable[[], int]:
    """Ends the step at its k-th PUT (in either bucket), before it is sent; gives a count of the PUTs there were."""
    lock, count = threading.Lock(), 0

    def on_put(**_: Any) -> None:
        nonlocal count
        with lock:
            count += 1
            if count == k:
                raise Killed

    for bucket in (context.data, context.models):
        bucket.client.meta.events.register("before-call.s3.PutObject", on_put)
    return lambda: count


def test_killed_at_any_put_nothing_is_visible_and_a_retry_makes_exactly_one_version(make_context: MakeContext) -> None:
    puts = _puts_of_an_export(make_context)
    assert puts == len(CONTENT) + 5  # claim, files, marker, champion, the run's result, the step's marker
    for k in range(1, puts + 1):
        run = f"digits-mlp-{k:010d}"
        model_before = visible(make_context().models)
        dying = accepted(make_context(run=run))
        _kill_before_put(dying, k)
        with pytest.raises(Killed):
            export.run(dying)
        seen = visible(dying.models)
        # Whatever is visible now is whole (visible() checks), and the step does not pretend to have ended.
        assert set(seen) - set(model_before) == ({k_version(model_before)} if k > len(CONTENT) + 2 else set())
        assert markers.read(dying.data, keys.step_marker(run, "export")) is None

        export.run(make_context(run=run))
        after = visible(dying.models)
        assert set(after) - set(model_before) == {k_version(model_before)}
        assert after[k_version(model_before)].values["run"] == run
        pointer = champion(dying)
        assert pointer is not None
        assert (pointer["version"], pointer["run"]) == (k_version(model_before), run)
    claims = [json.loads(dying.models.get(key) or b"")["run"] for key, _, _ in dying.models.list(keys.model_claims(MODEL))]
    assert len(claims) == len(set(claims)) == len(visible(dying.models))


def k_version(before: dict[int, Any]) -> int:
    return max(before, default=0) + 1


def _puts_of_an_export(make_context: MakeContext) -> int:
    context = accepted(make_context(run="digits-mlp-9999999999"))
    count = _kill_before_put(context, 0)
    export.run(context)
    return count()


def test_a_changed_byte_is_never_exported(make_context: MakeContext) -> None:
    context = accepted(make_context())
    context.data.put(keys.saved_model(context.spec.run) + "saved_model.pb", b"GRAPH" * 100)
    with pytest.raises(DataError, match="is not what was recorded"):
        export.run(context)
    assert visible(context.models) == {}
    assert champion(context) is None


def test_half_a_saved_model_is_never_exported(make_context: MakeContext) -> None:
    context = accepted(make_context())
    context.data.delete(keys.saved_model(context.spec.run) + "variables/variables.index")
    with pytest.raises(DataError, match=r"variables\.index is not there; clear evaluate"):
        export.run(context)
    assert list(context.models.list("")) == []


def test_an_older_release_never_replaces_a_newer_champion(make_context: MakeContext) -> None:
    newer = accepted(make_context(run="digits-mlp-newer", dataset__version="1.1.0", dataset__released="2026-02-01T00:00:00Z"), 0.91)
    export.run(newer)
    older = accepted(make_context(run="digits-mlp-older"), 0.99)
    export.run(older)
    assert set(visible(older.models)) == {1, 2}
    pointer = champion(older)
    assert pointer is not None
    assert pointer["version"] == 1
    step = markers.read(older.data, keys.step_marker("digits-mlp-older", "export"))
    assert step is not None
    assert step.values["champion"] is False
    assert "champion version 1 stays: it was trained on dataset version 1.1.0" in step.values["reason"]


def test_the_same_release_in_another_time_zone_is_the_same(make_context: MakeContext) -> None:
    export.run(accepted(make_context(run="digits-mlp-a", dataset__released="2026-01-01T01:00:00+01:00")))
    context = accepted(make_context(run="digits-mlp-b"))
    export.run(context)
    pointer = champion(context)
    assert pointer is not None
    assert pointer["version"] == 2


def test_a_champion_crowned_since_the_gate_must_be_beaten_too(make_context: MakeContext) -> None:
    first = accepted(make_context(run="digits-mlp-a", gate__beat_champion=True), 0.97)
    second = accepted(make_context(run="digits-mlp-b", gate__beat_champion=True), 0.95)
    export.run(first)
    export.run(second)
    pointer = champion(second)
    assert pointer is not None
    assert pointer["version"] == 1


def test_many_exports_at_once_get_a_version_each(make_context: MakeContext) -> None:
    contexts = [accepted(make_context(run=f"digits-mlp-{i}", dataset__released=f"2026-01-{i + 1:02d}T00:00:00Z")) for i in range(8)]
    stop, torn = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                visible(contexts[0].models)
            except AssertionError as error:
                torn.append(error)

    with ThreadPoolExecutor(9) as pool:
        reader = pool.submit(read)
        list(pool.map(export.run, contexts))
        stop.set()
        reader.result()
    assert torn == []
    versions = visible(contexts[0].models)
    assert set(versions) == set(range(1, 9))
    assert len({marker.values["run"] for marker in versions.values()}) == 8
    pointer = champion(contexts[0])
    assert pointer is not None
    # Whatever the order of their ends: the newest release is the champion.
    assert pointer["run"] == "digits-mlp-7"


def test_claims_older_than_the_run_are_not_read(make_context: MakeContext) -> None:
    context = accepted(make_context(created="2199-01-01T00:00:00Z"))
    for version in range(1, 6):
        context.models.put_json(keys.model_claim(MODEL, version), {"run": "old"})
    gets: list[str] = []
    context.models.client.meta.events.register("before-call.s3.GetObject", lambda params, **_: gets.append(params["url_path"]))
    assert export.claim(context, MODEL) == 6
    assert gets == []


@pytest.mark.parametrize("there_before", [False, True], ids=["the first champion", "a champion before"])
def test_a_champion_crowned_in_the_last_moment_is_not_overwritten(make_context: MakeContext, there_before: bool) -> None:
    if there_before:
        export.run(accepted(make_context(run="digits-mlp-first", dataset__released="2025-01-01T00:00:00Z")))
    newer = {"run": "digits-mlp-newer", "version": 9, "dataset_version": "1.1.0", "released": "2026-02-01T00:00:00Z", "metrics": {}}
    context = accepted(make_context())
    other = Bucket(context.data.client, context.models.name)
    put = []

    def between_look_and_write(params: dict[str, Any], **_: Any) -> None:
        if params["url_path"].endswith("champion.json") and not put:
            put.append(1)
            other.put_json(keys.champion(MODEL), newer)

    context.models.client.meta.events.register("before-call.s3.PutObject", between_look_and_write)
    export.run(context)
    assert put == [1]
    assert champion(context) == newer
    step = markers.read(context.data, keys.step_marker(context.spec.run, "export"))
    assert step is not None
    assert step.values["champion"] is False
