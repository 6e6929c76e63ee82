"""Step ``plan``: which worker reads which shard files, and how many steps the training has.

Reads the markers of ``prepare`` and of every shard task; writes ``manifest.json`` of the layout (shared by the tenant's runs) and
``plan.json`` of the run. No TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainer.errors import DataError, UserError
from trainer.steps import prepare, shard
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.objects import Bucket, File, encode

STEP: Final = "plan"
VERSION: Final = 1


def run(context: Context) -> None:
    """Does the step.

    Raises:
        UserError: more workers than shard files.
        DataError: a shard task has not ended well, or the shard files are not those that the dataset's settings ask for.
    """
    spec, bucket, root, dataset = context.spec, context.data, context.dataset_root, context.spec.dataset
    prepared = markers.need(bucket, keys.prepared_marker(root), prepare.STEP)
    tasks = [markers.need(bucket, keys.shard_marker(root, i), f"{shard.STEP} {i}") for i in range(dataset.shard_tasks)]
    for i, task in enumerate(tasks):
        if task.inputs != shard.inputs(dataset, prepared, i):
            raise DataError(
                f"{bucket.url(keys.shard_marker(root, i))} was made from another preparation of the dataset; "
                f"clear {shard.STEP} to make it again"
            )
    made_from = markers.digest(VERSION, prepared.digest, [task.digest for task in tasks])
    training = spec.training
    wanted = markers.digest(STEP, made_from, spec.gang.workers, training.epochs, training.steps, training.batch_size)
    step_key, manifest_key = keys.step_marker(spec.run, STEP), keys.manifest(root)
    manifest_there = markers.done(bucket, manifest_key, made_from) is not None
    done = markers.done(bucket, step_key, wanted)
    if done is not None and manifest_there:
        print(f"plan: already made: {dict(done.values)}")
        return

    train, evaluation = _shard_files(context, tasks)
    if not manifest_there:
        splits = {dataset.train_split: train, dataset.evaluation_split: evaluation}
        markers.write(
            bucket, manifest_key, "manifest", made_from, files=_distinct(splits), values=_describe(splits, _features(context, prepared))
        )
    total = sum(file.examples or 0 for file in train)
    document = {
        "version": VERSION,
        "train": [file.to_json() for file in train],
        "evaluation": [file.to_json() for file in evaluation],
        "workers": balance([file.examples or 0 for file in train], spec.gang.workers),
        "train_examples": total,
        "steps": training.total_steps(total),
    }
    values = {"train_examples": total, "evaluation_examples": sum(file.examples or 0 for file in evaluation), "steps": document["steps"]}
    markers.write(bucket, step_key, STEP, wanted, files=[_store(bucket, keys.plan(spec.run), document)], values=values)
    print(
        f"plan: {values['steps']} steps over {total} examples in {len(train)} files by {spec.gang.workers} workers: {document['workers']}"
    )


def balance(examples: Sequence[int], workers: int) -> list[list[int]]:
    """File indices by worker: largest file first, each to the worker with the fewest examples so far (then the fewest files).

    Raises:
        UserError: more workers than files, so that one would have nothing to read.
    """
    if workers > len(examples):
        raise UserError(
            f"gang.workers is {workers}, and the train split has {len(examples)} shard files: a worker would have nothing to read; "
            f"use at most {len(examples)} workers, or raise the dataset's shards"
        )
    loads = [(0, 0)] * workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    for index in sorted(range(len(examples)), key=lambda i: (-examples[i], i)):
        worker = min(range(workers), key=lambda w: (loads[w], w))
        shares[worker].append(index)
        loads[worker] = (loads[worker][0] + examples[index], loads[worker][1] + 1)
    return [sorted(share) for share in shares]


def _shard_files(context: Context, tasks: Sequence[markers.Marker]) -> tuple[list[File], list[File]]:
    """The shard files of the train and the evaluation split, in order of their index."""
    dataset, root = context.spec.dataset, context.dataset_root
    there = {file.key: file for task in tasks for file in task.files}
    train = [keys.shard_file(root, dataset.train_split, j, dataset.shards) for j in range(dataset.shards)]
    same = dataset.evaluation_split == dataset.train_split
    evaluation = train if same else [keys.shard_file(root, dataset.evaluation_split, 0, 1)]
    for key in (*train, *evaluation):
        if key not in there or not there[key].examples:
            raise DataError(f"{context.data.url(key)} is in no shard task's marker, or is empty; clear {shard.STEP} to make it again")
    return [there[key] for key in train], [there[key] for key in evaluation]


def _distinct(splits: Mapping[str, Sequence[File]]) -> list[File]:
    return sorted({file.key: file for files in splits.values() for file in files}.values(), key=lambda file: file.key)


def _describe(splits: Mapping[str, Sequence[File]], features: Any) -> dict[str, Any]:
    """The manifest's values: what is in which file, and how a record is read."""
    place = {file.key: i for i, file in enumerate(_distinct(splits))}
    return {
        "splits": {
            name: {"examples": sum(f.examples or 0 for f in files), "files": [place[f.key] for f in files]}
            for name, files in splits.items()
        },
        "features": features,
    }


def _features(context: Context, prepared: markers.Marker) -> Any:
    """TFDS' own description of the records, without which nobody can read them."""
    for file in prepared.files:
        if file.name == "features.json":
            return json.loads(context.data.download(file, context.work / "prepared" / file.name).read_text(encoding="utf-8"))
    raise DataError(f"{context.data.url(keys.prepared_marker(context.dataset_root))} has no features.json; clear {prepare.STEP}")


def _store(bucket: Bucket, key: str, document: Any) -> File:
    data = encode(document)
    bucket.put(key, data, content_type="application/json")
    return File.of(key, data)
