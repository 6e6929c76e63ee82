"""Step ``evaluate``: the last checkpoint on the evaluation split, and the SavedModel that may be exported.

One process, no cluster. Reads the train step's marker, the checkpoint it names, the plan and the evaluation shards; writes
``runs/<run>/saved_model/`` (files, then marker) and its own marker with the metrics. Whether the model is good is ``gate``'s business.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from trainer import code, environment
from trainer.engine import checkpoints
from trainer.engine import plan as plans
from trainer.errors import DataError
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.markers import Marker

STEP: Final = "evaluate"
FORMAT: Final = 1


def run(context: Context) -> None:
    """Does the step.

    Raises:
        DataError: training has not ended well, or its checkpoint is not whole.
        UserError: the model cannot be built or exported.
    """
    spec, data = context.spec, context.data
    trained = markers.need(data, keys.step_marker(spec.run, "train"), "train")
    step = trained.values.get("checkpoint_step")
    if not isinstance(step, int):
        raise DataError(f"{data.url(keys.step_marker(spec.run, 'train'))} names no checkpoint; clear train to do it again")
    checkpoint = markers.need(data, keys.checkpoint(spec.run, step) + "marker.json", "train")
    plan = plans.load(context)
    wanted = markers.digest(
        STEP,
        FORMAT,
        trained.digest,
        checkpoint.digest,
        [file.to_json() for file in plan.evaluation],
        asdict(spec.model),
        spec.code and asdict(spec.code),
        spec.evaluation_batch_size,
    )
    key = keys.step_marker(spec.run, STEP)
    done = markers.done(data, key, wanted)
    if done is None or not data.exists(keys.saved_model_marker(spec.run)):
        done = _evaluate(context, plan, checkpoint, step, key, wanted)
    print(f"evaluate: checkpoint {done.values['checkpoint_step']}: {dict(done.values['metrics'])}")


def _evaluate(context: Context, plan: plans.Plan, checkpoint: Marker, step: int, key: str, wanted: str) -> Marker:
    # TensorFlow's C++ side talks at every start; its errors come as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    spec, data = context.spec, context.data
    threads = environment.threads()
    names = []
    for index, file in enumerate(plan.evaluation):
        names.append(str(data.download(file, context.work / "evaluation" / f"{index:05d}.tfrecord")))
    prefix = checkpoints.fetch(data, checkpoint, context.work / "checkpoint")
    code.install(data, spec.code, context.work)

    from trainer.data.reading import read_shards
    from trainer.engine import evaluation, proof, runtime, saved_model

    runtime.start(threads)
    proved = proof.prove(spec, plan.features)
    model, taking = proved.model, proved.records
    evaluation.restore(model, prefix)

    batch = spec.evaluation_batch_size
    metrics = evaluation.evaluate(
        model, proved.objective, read_shards(names, plan.features, batch, transform=taking.transform, threads=threads)
    )
    expected = sum(file.examples or 0 for file in plan.evaluation)
    if metrics.examples != expected:
        raise DataError(f"{metrics.examples} examples were evaluated, the plan has {expected}")
    print(f"evaluate: {metrics.line()}")

    folder = context.work / "saved_model"
    shutil.rmtree(folder, ignore_errors=True)
    saved_model.export(proved, folder)
    raw = next(iter(read_shards(names, plan.features, batch, threads=threads)))
    x, _ = next(iter(read_shards(names, plan.features, batch, transform=taking.transform, threads=threads)))
    saved_model.prove(proved, folder, raw, model(x, training=False))

    files = _upload(context, folder, wanted, step)
    values: dict[str, Any] = {
        "metrics": {"accuracy": metrics.accuracy, "loss": metrics.loss},
        "examples": metrics.examples,
        "checkpoint_step": step,
    }
    return markers.write(data, key, STEP, wanted, files=files, values=values)


def _upload(context: Context, folder: Path, wanted: str, step: int) -> tuple[Any, ...]:
    """The SavedModel into the run's folder; what an earlier try left is taken away first, its marker before all."""
    data, run = context.data, context.spec.run
    root = keys.saved_model(run)
    data.delete(keys.saved_model_marker(run))
    data.delete_prefix(root)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [data.upload(path, root + path.relative_to(folder).as_posix()) for path in paths]
    markers.write(data, keys.saved_model_marker(run), STEP, wanted, files=files, values={"checkpoint_step": step})
    return tuple(files)
