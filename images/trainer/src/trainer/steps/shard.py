"""Step ``shard``: the prepared records are dealt to shard files, the unit of data that a worker fetches.

Task i of ``shard_tasks`` writes the shard files j of the train split with j % shard_tasks == i, each a contiguous run of the prepared
order (which TFDS already made random), so a task fetches only the prepared files it copies from. Task 0 also writes the evaluation
split, as one file. Records are copied as they are: neither TensorFlow nor user code runs here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainer.data import tfrecord
from trainer.errors import DataError, UserError
from trainer.spec import DatasetSpec
from trainer.steps import prepare
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.objects import File

STEP: Final = "shard"
FORMAT: Final = 1


@dataclass(frozen=True)
class Source:
    """A run of records in one prepared file."""

    name: str
    skip: int
    take: int


def inputs(dataset: DatasetSpec, prepared: markers.Marker, index: int) -> str:
    return markers.digest(
        STEP, FORMAT, prepared.digest, dataset.train_split, dataset.evaluation_split, dataset.shards, dataset.shard_tasks, index
    )


def run(context: Context, index: int) -> None:
    """Does task ``index`` of the step.

    Raises:
        UserError: no such task, or more shards than examples.
        DataError: the prepared dataset is not whole, or not what was recorded.
    """
    spec, bucket, root, dataset = context.spec, context.data, context.dataset_root, context.spec.dataset
    if not 0 <= index < dataset.shard_tasks:
        raise UserError(f"step shard: index {index}: this run has {dataset.shard_tasks} shard tasks, 0 to {dataset.shard_tasks - 1}")
    prepared = markers.need(bucket, keys.prepared_marker(root), prepare.STEP)
    wanted = inputs(dataset, prepared, index)
    key, step_key = keys.shard_marker(root, index), keys.step_marker(spec.run, STEP, index)
    marker = markers.done(bucket, key, wanted)
    if marker is None:
        files, examples = _write(context, prepared, index)
        marker = markers.write(bucket, key, STEP, wanted, files=files, values={"examples": examples})
        print(f"shard {index}: wrote {len(files)} files: {examples}")
    else:
        print(f"shard {index}: already there: {dict(marker.values['examples'])}")
    if markers.done(bucket, step_key, wanted) is None:
        markers.write(bucket, step_key, STEP, wanted, values={"examples": marker.values["examples"]})


def _write(context: Context, prepared: markers.Marker, index: int) -> tuple[list[File], dict[str, int]]:
    dataset, root = context.spec.dataset, context.dataset_root
    store = _PreparedFiles(context, prepared)
    train = store.sources(dataset.train_split)
    total = sum(source.take for source in train)
    if total < dataset.shards:
        raise UserError(
            f"dataset {dataset.name} {dataset.version}: split {dataset.train_split!r} has {total} examples for {dataset.shards} shards; "
            f"set shards to at most {total}"
        )
    files, examples = [], {dataset.train_split: 0}
    for j in range(index, dataset.shards, dataset.shard_tasks):
        first, last = total * j // dataset.shards, total * (j + 1) // dataset.shards
        file = store.write(window(train, first, last - first), keys.shard_file(root, dataset.train_split, j, dataset.shards), last - first)
        files.append(file)
        examples[dataset.train_split] += last - first
    if index == 0 and dataset.evaluation_split != dataset.train_split:
        sources = store.sources(dataset.evaluation_split)
        count = sum(source.take for source in sources)
        files.append(store.write(sources, keys.shard_file(root, dataset.evaluation_split, 0, 1), count))
        examples[dataset.evaluation_split] = count
    return files, examples


def window(sources: list[Source], first: int, count: int) -> list[Source]:
    """The part of ``sources`` that holds ``count`` records from record ``first`` on."""
    found = []
    for source in sources:
        skip = min(first, source.take)
        take = min(count, source.take - skip)
        if take:
            found.append(Source(source.name, source.skip + skip, take))
        first, count = first - skip, count - take
    return found


class _PreparedFiles:
    """The prepared TFDS folder: fetched file by file, only what is copied from."""

    def __init__(self, context: Context, prepared: markers.Marker) -> None:
        self._bucket = context.data
        self._folder = context.work / "prepared"
        prefix = keys.prepared(context.dataset_root)
        self._files = {file.key.removeprefix(prefix): file for file in prepared.files}
        self._info: Any = None

    def sources(self, split: str) -> list[Source]:
        """The records of a split (TFDS' slicing such as ``train[:80%]`` works) in prepared order."""
        try:
            instructions = self._read_info().splits[split].file_instructions
        except (KeyError, ValueError, AssertionError) as error:
            raise DataError(f"the prepared dataset has no split {split!r}; it has {', '.join(self._read_info().splits)}") from error
        return [Source(Path(instruction.filename).name, instruction.skip, instruction.take) for instruction in instructions]

    def write(self, sources: list[Source], key: str, count: int) -> File:
        """Copies the records into one shard file and uploads it."""
        path = self._folder.with_name("shards") / key.rsplit("/", 1)[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        written = 0
        with path.open("wb") as out:
            for frame in self._frames(sources):
                out.write(frame)
                written += 1
        if written != count:
            raise DataError(f"{path.name}: {written} records written, expected {count}")
        file = self._bucket.upload(path, key, examples=count)
        path.unlink()
        return file

    def _frames(self, sources: list[Source]) -> Iterator[bytes]:
        for source in sources:
            yield from tfrecord.frames(self._fetch(source.name), source.skip, source.take)

    def _fetch(self, name: str) -> Path:
        if name not in self._files:
            raise DataError(f"the prepared dataset names file {name!r}, which its marker does not have; it has {', '.join(self._files)}")
        return self._bucket.download(self._files[name], self._folder / name)

    def _read_info(self) -> Any:
        """TFDS' ``DatasetInfo`` of the folder, from its metadata files alone."""
        if self._info is None:
            import tensorflow_datasets as tfds

            for name in self._files:
                if name.endswith(".json") or name.endswith(".txt"):
                    self._fetch(name)
            self._info = tfds.builder_from_directory(str(self._folder)).info
        return self._info
