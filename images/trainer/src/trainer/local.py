"""``trainer local``: the run's model in this one process on the real shards, for finding one's own bugs in seconds.

No gang, no checkpoints, nothing stored: the same model, records, step and progress lines as in a gang, then the metrics. The run spec is
as the platform made it. The dataset's files come from a folder (``--data``: ``manifest.json`` and the shard files by name, as
``trainyard run --local`` fetches them by presigned links), else from S3 with the credentials of the environment. The user's package is
what Python finds (PYTHONPATH), else the published one that the spec names.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainer import code
from trainer import spec as specs
from trainer.engine.evaluation import Metrics
from trainer.errors import DataError, DivergedError, UserError
from trainer.spec import RunSpec
from trainer.storage import keys
from trainer.storage.client import connect
from trainer.storage.objects import Bucket, File, sha256_of

INTERRUPTED = 130
"""The shell's code for Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and evaluates; 0, or 130 after Ctrl-C.

    Raises:
        TrainerError: as in a gang.
    """
    parser = argparse.ArgumentParser(prog="trainer local", description="Train a run's model in this one process.")
    parser.add_argument("--spec", type=Path, required=True, help="the run spec, a JSON file")
    parser.add_argument("--data", type=Path, help="folder with manifest.json and the shard files; default: S3, as the spec says")
    parser.add_argument("--metrics", type=Path, help="file that gets the metrics as JSON, at the end: without it the run did not end well")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        spec = specs.load(options.spec.read_text())
    except OSError as error:
        raise UserError(f"--spec {options.spec}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="trainer-local-") as work:
        try:
            metrics = _run(spec, options.data, Path(work))
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return INTERRUPTED
    if options.metrics is not None:
        options.metrics.write_text(json.dumps(asdict(metrics)))
    return 0


def _run(spec: RunSpec, folder: Path | None, work: Path) -> Metrics:
    bucket = Bucket(connect(spec.storage), spec.storage.bucket) if folder is None or spec.code else None
    manifest, fetch = _from_folder(spec, folder) if folder else _from_s3(spec, bucket, work)
    files = [File.from_json(file) for file in manifest["files"]]
    splits, features = manifest["values"]["splits"], manifest["values"]["features"]
    _find_package(spec, bucket, work)

    from trainer.engine import proof, runtime

    runtime.start(os.cpu_count() or 1)
    # Before the shards come: a model that cannot be built needs none of them.
    proved = proof.prove(spec, features)
    print(f"the model {spec.model.build} takes a batch")
    train = [files[index] for index in splits[spec.dataset.train_split]["files"]]
    evaluation = [files[index] for index in splits[spec.dataset.evaluation_split]["files"]]
    _train(spec, proved, features, [fetch(file) for file in train], sum(file.examples or 0 for file in train))
    return _evaluate(spec, proved, features, [fetch(file) for file in evaluation])


def _train(spec: RunSpec, proved: Any, features: Mapping[str, Any], names: list[str], examples: int) -> None:
    import tensorflow as tf

    from trainer.data.reading import read_shards
    from trainer.engine import optimizers, training_step
    from trainer.engine.progress import Meter
    from trainer.engine.user_model import blame_user

    training = spec.training
    total = training.total_steps(examples)
    optimizer = optimizers.make(training.optimizer, training.learning_rate)
    optimizer.build(proved.model.trainable_variables)
    step = tf.function(training_step.make(proved.model, optimizer, proved.objective))
    batches = read_shards(
        names, features, training.batch_size, seed=spec.seed, repeat=True, transform=proved.records.transform, threads=os.cpu_count() or 1
    )
    meter = Meter(total, examples, training.batch_size, 0)
    for x, y in batches.take(total):
        with blame_user(f"{proved.user.name}: step {meter.step + 1}"):
            loss = float(step(x, y))
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss} at step {meter.step + 1} of {total}: lower `training.learning_rate`")
        meter.add(1, loss)
        if meter.due():
            print(meter.report().line())
    if meter.pending:
        print(meter.report().line())


def _evaluate(spec: RunSpec, proved: Any, features: Mapping[str, Any], names: list[str]) -> Metrics:
    from trainer.data.reading import read_shards
    from trainer.engine import evaluation

    batches = read_shards(names, features, spec.evaluation_batch_size, transform=proved.records.transform, threads=os.cpu_count() or 1)
    metrics = evaluation.evaluate(proved.model, proved.objective, batches)
    print(metrics.line())
    return metrics


def _from_folder(spec: RunSpec, folder: Path) -> tuple[Mapping[str, Any], Callable[[File], str]]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; `trainyard run --local` fetches it, with the shard files beside it") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}; delete {folder} and fetch it again") from error

    def fetch(file: File) -> str:
        found = folder / file.name
        if not found.is_file() or found.stat().st_size != file.size or sha256_of(found) != file.sha256:
            raise DataError(f"{found} is not the shard file of {spec.dataset.name} {spec.dataset.version}: delete it and fetch it again")
        return str(found)

    return manifest, fetch


def _from_s3(spec: RunSpec, bucket: Bucket | None, work: Path) -> tuple[Mapping[str, Any], Callable[[File], str]]:
    assert bucket is not None
    dataset = spec.dataset
    key = keys.manifest(keys.dataset_root(dataset.name, dataset.version, dataset.layout))
    manifest = bucket.get_json(key)
    if manifest is None:
        raise DataError(f"{bucket.url(key)} is not there: the first run on {dataset.name} {dataset.version} makes the shards")
    return manifest, lambda file: str(bucket.download(file, work / "shards" / file.name))


def _find_package(spec: RunSpec, bucket: Bucket | None, work: Path) -> None:
    """Puts the user's package where a published one would lie, so that its mistakes are told in the same way, with file and line."""
    name = spec.model.build.partition(":")[0].partition(".")[0]
    found = importlib.util.find_spec(name)
    if name == "trainer":
        return
    if found is None or not found.origin:
        if bucket is not None:
            code.install(bucket, spec.code, work)
        return
    source = Path(found.origin).resolve()
    source = source.parent if source.name == "__init__.py" else source
    folder = work.resolve() / code.FOLDER / hashlib.sha256(str(source).encode()).hexdigest()
    folder.mkdir(parents=True)
    (folder / source.name).symlink_to(source)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
