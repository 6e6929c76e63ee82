"""The run's plan, as step ``plan`` wrote it, and the shard files in a replica's own directory.

Every worker finds its share under the same relative names, ``shards/00000.tfrecord`` and on: the chief traces the reading once, and each
worker reads its own files by it. A worker with fewer files than another has empty ones at the end, which a TFRecord file may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainer.errors import DataError
from trainer.steps.context import Context
from trainer.storage import keys
from trainer.storage.objects import Bucket, File

FOLDER: Final = Path("shards")


@dataclass(frozen=True)
class Plan:
    """What is read by whom, and for how many steps."""

    train: tuple[File, ...]
    evaluation: tuple[File, ...]
    workers: tuple[tuple[int, ...], ...]
    """Indices into ``train``, by worker."""
    train_examples: int
    steps: int
    features: Mapping[str, Any]
    """TFDS' ``features.json``, from the layout's manifest."""

    def share(self, worker: int) -> list[File]:
        """The shard files of one worker."""
        return [self.train[index] for index in self.workers[worker]]

    @property
    def widest(self) -> int:
        """Files of the worker with the most."""
        return max(len(share) for share in self.workers)

    def names(self) -> list[str]:
        """Relative names under which each worker finds its share."""
        return [str(local_name(index)) for index in range(self.widest)]


def load(context: Context) -> Plan:
    """The run's plan.

    Raises:
        DataError: it or the manifest is not there, or not one of this version.
    """
    return parse(
        _need(context.data, keys.plan(context.spec.run)),
        _need(context.data, keys.manifest(context.dataset_root)),
        context.data.url(keys.plan(context.spec.run)),
    )


def parse(plan: Mapping[str, Any], manifest: Mapping[str, Any], name: str) -> Plan:
    """A plan from its two documents; ``name`` is for messages.

    Raises:
        DataError: not a plan of this version.
    """
    try:
        if plan["version"] != 1:
            raise DataError(f"{name} has version {plan['version']!r}; this trainer reads version 1 only")
        return Plan(
            train=tuple(File.from_json(file) for file in plan["train"]),
            evaluation=tuple(File.from_json(file) for file in plan["evaluation"]),
            workers=tuple(tuple(share) for share in plan["workers"]),
            train_examples=int(plan["train_examples"]),
            steps=int(plan["steps"]),
            features=manifest["values"]["features"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name} is no plan: {type(error).__name__}: {error}; clear step plan to make it again") from error


def _need(data: Bucket, key: str) -> Any:
    document = data.get_json(key)
    if document is None:
        raise DataError(f"{data.url(key)} is not there: step plan has not ended well; run it (again) first")
    return document


def local_name(index: int) -> Path:
    return FOLDER / f"{index:05d}.tfrecord"


def fetch(data: Bucket, files: Sequence[File], pad_to: int, say: Callable[[str], None]) -> None:
    """Brings a worker's share into its current directory, checked by SHA-256; what is there already is checked and kept.

    Raises:
        DataError: bytes that do not match.
        StorageError: S3 does not answer.
    """
    FOLDER.mkdir(exist_ok=True)
    for index, file in enumerate(files):
        data.download(file, local_name(index))
    for index in range(len(files), pad_to):
        local_name(index).write_bytes(b"")
    size = sum(file.size for file in files)
    say(f"{len(files)} shard file(s), {sum(file.examples or 0 for file in files)} examples, {size / 1e6:.1f} MB are here")
