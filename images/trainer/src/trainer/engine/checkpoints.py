"""Checkpoints in S3: TensorFlow's own files, the marker last, the newest two kept.

A checkpoint is there when its marker is whole; one that was being written when the chief died has none and is passed over, then deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainer.engine.generation import Generation
from trainer.errors import DataError
from trainer.spec import RunSpec
from trainer.storage import keys, markers
from trainer.storage.markers import Marker
from trainer.storage.objects import Bucket

KEPT = 2
_PREFIX = "weights"
_MARKER = "marker.json"


def inputs(spec: RunSpec) -> str:
    """Hash over all that shapes the weights; the gang's size does not: a checkpoint restores on any number of parameter servers."""
    return markers.digest(asdict(spec.dataset), spec.code and asdict(spec.code), asdict(spec.model), asdict(spec.training), spec.seed)


def fetch(data: Bucket, marker: Marker, folder: Path) -> str:
    """Downloads a checkpoint's files, checked; the prefix that TensorFlow reads.

    Raises:
        DataError: bytes that do not match their SHA-256.
    """
    for file in marker.files:
        data.download(file, folder / file.name)
    return str(folder / _PREFIX)


class Checkpoints:
    """The checkpoints of one run, written only while its generation holds the run."""

    def __init__(self, data: Bucket, spec: RunSpec, generation: Generation, folder: Path, say: Callable[[str], None]) -> None:
        self._data, self._run, self._inputs = data, spec.run, inputs(spec)
        self._generation, self._folder, self._say = generation, folder, say

    def save(self, step: int, write: Callable[[str], None], values: Mapping[str, Any]) -> Marker:
        """``write(prefix)`` makes TensorFlow's files here; they are uploaded, then the marker, then old checkpoints are deleted.

        Raises:
            SupersededError: a newer generation holds the run; no marker was written.
            StorageError: S3 does not answer.
        """
        local = self._folder / f"{step:010d}"
        shutil.rmtree(local, ignore_errors=True)
        local.mkdir(parents=True)
        try:
            write(str(local / _PREFIX))
            root = keys.checkpoint(self._run, step)
            self._generation.check()
            # TensorFlow's own `checkpoint` file names paths of this machine: nobody reads it.
            files = [self._data.upload(path, root + path.name) for path in sorted(local.glob(f"{_PREFIX}.*"))]
            self._generation.check()
            marker = markers.write(self._data, root + _MARKER, "checkpoint", self._inputs, files=files, values={"step": step, **values})
        finally:
            shutil.rmtree(local, ignore_errors=True)
        self._prune(step)
        return marker

    def restore(self, read: Callable[[str], int]) -> Marker | None:
        """Gives the newest whole checkpoint of these inputs to ``read(prefix)``; None if there is none.

        One whose bytes are damaged is said and passed over.
        """
        for step in sorted(self._steps(), reverse=True):
            key = keys.checkpoint(self._run, step) + _MARKER
            local = self._folder / f"restore-{step:010d}"
            try:
                marker = markers.done(self._data, key, self._inputs)
                if marker is None:
                    continue
                read(fetch(self._data, marker, local))
                return marker
            except DataError as error:
                self._say(f"checkpoint {step} is passed over: {error}")
            finally:
                shutil.rmtree(local, ignore_errors=True)
        return None

    def _steps(self) -> set[int]:
        root = keys.checkpoints(self._run)
        names = {key.removeprefix(root).partition("/")[0] for key, _, _ in self._data.list(root)}
        return {int(name) for name in names if name.isdigit()}

    def _prune(self, newest: int) -> None:
        whole = 0
        for step in sorted(self._steps(), reverse=True):
            root = keys.checkpoint(self._run, step)
            if step > newest:
                continue
            if whole < KEPT and self._data.exists(root + _MARKER):
                whole += 1
                continue
            # The marker first: half a checkpoint must not look whole.
            self._data.delete(root + _MARKER)
            self._data.delete_prefix(root)
