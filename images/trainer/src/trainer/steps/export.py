"""Step ``export``: the accepted SavedModel becomes a version in the models bucket, and perhaps the champion.

Copies bytes and runs no user code, with the one identity that may write the models bucket. Order, so that a reader never sees half a
model and a kill at any moment leaves nothing visible: claim of the version → files → marker → champion (compare-and-swap) → the run's
result → the step's marker. Repeating it at any point ends in the same one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from trainer.errors import ConflictError, DataError, Skipped, StorageError
from trainer.steps import gate, outcome
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.objects import File

STEP: Final = "export"
TRIES: Final = 50
"""Lost races for a version number or the champion before giving up; each loss means that somebody else succeeded."""


def run(context: Context) -> None:
    """Does the step.

    Raises:
        Skipped: the gate said no.
        DataError: an earlier step has not ended well, or the SavedModel is not what was recorded.
    """
    spec, bucket = context.spec, context.data
    judged = markers.need(bucket, keys.step_marker(spec.run, gate.STEP), gate.STEP)
    if judged.values["verdict"] != gate.ACCEPTED:
        raise Skipped(f"nothing to export: the gate rejected the model: {judged.values['reason']}")
    evaluated = markers.need(bucket, keys.step_marker(spec.run, "evaluate"), "evaluate")
    gate.check_checkpoint(markers.need(bucket, keys.step_marker(spec.run, "train"), "train"), evaluated)
    saved = markers.need(bucket, keys.saved_model_marker(spec.run), "evaluate")
    if not any(file.name == "saved_model.pb" for file in saved.files):
        raise DataError(f"{bucket.url(keys.saved_model(spec.run))} has no saved_model.pb; clear evaluate to make it again")
    wanted = markers.digest(STEP, judged.digest, saved.digest, spec.export.model)
    step_key = keys.step_marker(spec.run, STEP)
    if done := markers.done(bucket, step_key, wanted):
        print(f"export: already done: {dict(done.values)}")
        return

    model, metrics = spec.export.model, dict(evaluated.values["metrics"])
    version = claim(context, model)
    files = _copy(context, saved, keys.model_version(model, version))
    marker = _mark(context, model, version, wanted, files, metrics)
    champion, reason = crown(context, model, version, marker, metrics)
    outcome.write(context, outcome.EXPORTED, reason, metrics, model=model, model_version=version)
    markers.write(bucket, step_key, STEP, wanted, values={"model": model, "version": version, "champion": champion, "reason": reason})
    print(f"export: {model} version {version} is at {context.models.url(keys.model_version(model, version))}: {reason}")


def claim(context: Context, model: str) -> int:
    """The version number of this run: the one it claimed before, or the next free one. Nobody else ever gets it.

    Raises:
        StorageError: lost the race for a number too often.
    """
    bucket, run = context.models, context.spec.run
    for _ in range(TRIES):
        taken = _claims(context, model)
        for version, modified in sorted(taken.items(), reverse=True):
            # A claim of this run cannot be older than the run; a day allows for clocks that differ.
            if modified < (context.spec.created - timedelta(days=1)).timestamp():
                break
            if (bucket.get_json(keys.model_claim(model, version)) or {}).get("run") == run:
                return version
        version = max(taken, default=0) + 1
        try:
            bucket.put_json(keys.model_claim(model, version), {"run": run, "at": markers.now()}, if_absent=True)
            return version
        except ConflictError:
            continue  # it may even be ours, by a try whose answer was lost: the next look tells
    raise StorageError(f"model {model}: {TRIES} version numbers were claimed by others meanwhile; try again")


def _claims(context: Context, model: str) -> dict[int, float]:
    """Claimed version numbers and when they were claimed (epoch seconds)."""
    found = {}
    for key, _, modified in context.models.list(keys.model_claims(model)):
        name = key.rsplit("/", 1)[-1].removesuffix(".json")
        if name.isdigit():
            found[int(name)] = modified
    return found


def _copy(context: Context, saved: markers.Marker, target: str) -> list[File]:
    """Copies the SavedModel byte by byte, checked on the way; files that are there already are left alone."""
    source = keys.saved_model(context.spec.run)
    files = []
    for file in saved.files:
        if not file.key.startswith(source):
            raise DataError(f"{context.data.url(keys.saved_model_marker(context.spec.run))} names {file.key}, which lies outside {source}")
        path = context.work / "saved_model" / file.key.removeprefix(source)
        copied = context.models.upload(context.data.download(file, path), f"{target}{file.key.removeprefix(source)}")
        path.unlink()
        if (copied.size, copied.sha256) != (file.size, file.sha256):
            raise DataError(f"{context.models.url(copied.key)}: {copied.size} bytes were written, {file.size} were read")
        files.append(copied)
    return files


def _mark(context: Context, model: str, version: int, wanted: str, files: Sequence[File], metrics: dict[str, Any]) -> markers.Marker:
    """Makes the version visible. A marker that is there already is kept: readers may have seen it."""
    spec, key = context.spec, keys.model_marker(model, version)
    there = markers.done(context.models, key, wanted)
    if there is not None:
        return there
    values = {
        "model": model,
        "version": version,
        "run": spec.run,
        "pipeline": spec.pipeline,
        "dataset": spec.dataset.name,
        "dataset_version": spec.dataset.version,
        "released": spec.dataset.released.isoformat(),
        "code": spec.code.sha256 if spec.code else None,
        "metrics": metrics,
    }
    marker = markers.write(context.models, key, STEP, wanted, files=files, values=values)
    if problems := markers.missing(context.models, marker):
        raise StorageError(f"{context.models.url(key)} is not whole after writing: {'; '.join(problems)}")
    return marker


def crown(context: Context, model: str, version: int, marker: markers.Marker, metrics: dict[str, Any]) -> tuple[bool, str]:
    """Makes the version the champion unless the present one is better placed; gives whether, and why.

    Raises:
        StorageError: lost the race too often.
    """
    spec, bucket, key = context.spec, context.models, keys.champion(model)
    document = {
        "model": model,
        "version": version,
        "run": spec.run,
        "pipeline": spec.pipeline,
        "dataset_version": spec.dataset.version,
        "released": spec.dataset.released.isoformat(),
        "metrics": metrics,
        "files_sha256": markers.digest([[file.key, file.size, file.sha256] for file in marker.files]),
        "at": markers.now(),
    }
    for _ in range(TRIES):
        found = bucket.get_json_with_etag(key)
        present = found[0] if found else None
        if present is not None and (present["run"], present["version"]) == (spec.run, version):
            return True, f"version {version} is the champion"
        if reason := _keeps(context, present, metrics):
            return False, reason
        try:
            bucket.put_json(key, document, if_match=found[1] if found else None, if_absent=found is None)
            return True, f"version {version} is the champion" + (f" after version {present['version']}" if present else "")
        except ConflictError:
            continue
    raise StorageError(f"{bucket.url(key)}: {TRIES} others became champion meanwhile; try again")


def _keeps(context: Context, present: dict[str, Any] | None, metrics: dict[str, Any]) -> str | None:
    """Why the present champion stays, None when it is to be replaced."""
    if present is None:
        return None
    spec = context.spec
    if spec.dataset.released < datetime.fromisoformat(present["released"]):
        return (
            f"champion version {present['version']} stays: it was trained on dataset version {present['dataset_version']} "
            f"(released {present['released']}), newer than {spec.dataset.version}"
        )
    if spec.gate.beat_champion:
        # The gate compared with the champion of its own time; another run may have been crowned since.
        verdict = gate.judge(spec.gate, metrics, present)
        if not verdict.accepted:
            return f"champion version {present['version']} stays: {verdict.reason}"
    return None
