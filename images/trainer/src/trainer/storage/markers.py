"""Markers: the document that says "all of this is there", written last.

A step whose marker is whole (every file of it is there with its size) and whose inputs are the same has nothing to do when it is run
again. SHA-256 is checked by whoever reads the bytes. The shape is the contract's::

    {"version": 1, "step": "...", "inputs": "<sha256>", "files": [{"key", "size", "sha256"[, "examples"]}],
     "values": {...}, "ended": "<iso>"}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from trainer.errors import DataError
from trainer.storage.objects import Bucket, File

VERSION: Final = 1


@dataclass(frozen=True)
class Marker:
    step: str
    inputs: str
    """Hash over all that the step read: another hash means that its result is stale."""
    files: tuple[File, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    ended: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "step": self.step,
            "inputs": self.inputs,
            "files": [file.to_json() for file in self.files],
            "values": dict(self.values),
            "ended": self.ended,
        }

    @property
    def digest(self) -> str:
        """Hash of what the marker vouches for (not of when): what a later step puts into its own inputs."""
        return digest(self.inputs, [file.to_json() for file in self.files], dict(self.values))


def digest(*parts: Any) -> str:
    """SHA-256 over JSON values; equal values give equal digests."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def now() -> str:
    """The present in UTC, as all documents spell it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(
    bucket: Bucket, key: str, step: str, inputs: str, *, files: Sequence[File] = (), values: Mapping[str, Any] | None = None
) -> Marker:
    """Writes a marker; the caller has written every file of it before."""
    marker = Marker(step=step, inputs=inputs, files=tuple(files), values=dict(values or {}), ended=now())
    bucket.put_json(key, marker.to_json())
    return marker


def read(bucket: Bucket, key: str) -> Marker | None:
    """The marker as it stands, None if there is none; its files are not looked at.

    Raises:
        DataError: there is an object and it is no marker of this version.
    """
    document = bucket.get_json(key)
    if document is None:
        return None
    try:
        if document["version"] != VERSION:
            raise DataError(f"{bucket.url(key)} is a marker of version {document['version']!r}; this trainer reads version {VERSION} only")
        return Marker(
            step=document["step"],
            inputs=document["inputs"],
            files=tuple(File.from_json(file) for file in document["files"]),
            values=document["values"],
            ended=document["ended"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{bucket.url(key)} is no marker: {type(error).__name__}: {error}") from error


def missing(bucket: Bucket, marker: Marker) -> list[str]:
    """What is wrong with the files of a marker: absent, or of another size."""
    problems = []
    for file in marker.files:
        head = bucket.head(file.key)
        if head is None:
            problems.append(f"{bucket.url(file.key)} is not there")
        elif head.size != file.size:
            problems.append(f"{bucket.url(file.key)} has {head.size} bytes, recorded were {file.size}")
    return problems


def read_whole(bucket: Bucket, key: str) -> Marker | None:
    """The marker if it is there and each of its files is there with its size, else None."""
    marker = read(bucket, key)
    return marker if marker is not None and not missing(bucket, marker) else None


def need(bucket: Bucket, key: str, made_by: str) -> Marker:
    """The whole marker of an earlier step.

    Raises:
        DataError: it is not there or not whole; the text says which step makes it.
    """
    marker = read(bucket, key)
    if marker is None:
        raise DataError(f"{bucket.url(key)} is not there: {made_by} has not ended well; run it (again) first")
    if problems := missing(bucket, marker):
        raise DataError(f"{bucket.url(key)} is not whole: {'; '.join(problems)}; clear {made_by} to make it again")
    return marker


def done(bucket: Bucket, key: str, inputs: str) -> Marker | None:
    """The marker if the work need not be done again: whole, and made from the same inputs."""
    marker = read_whole(bucket, key)
    return marker if marker is not None and marker.inputs == inputs else None
