"""The run spec as the execution side reads it: JSON text to frozen dataclasses, strictly.

The document is written by the orchestration side (``trainyard/contract/run_spec.py``); the two share no Python, and ``tests/contract``
holds them together. A key that is missing, unknown or of the wrong kind is named; all problems are in one error.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from trainer.errors import UserError

VERSION: Final = 1


@dataclass(frozen=True)
class StorageSpec:
    endpoint: str | None
    """URL as pods see it; None for AWS' own."""
    region: str
    bucket: str
    models_bucket: str


@dataclass(frozen=True)
class DatasetSpec:
    name: str
    version: str
    released: datetime
    builder: str
    """``module:Class`` of a tensorflow_datasets builder."""
    config: Mapping[str, Any]
    """Keyword arguments of the builder's constructor."""
    train_split: str
    evaluation_split: str
    shards: int
    shard_tasks: int
    layout: str


@dataclass(frozen=True)
class CodeSpec:
    package: str
    sha256: str
    key: str


@dataclass(frozen=True)
class ModelSpec:
    build: str
    """``module:function``, called as ``function(config) -> keras.Model``."""
    config: Mapping[str, Any]


@dataclass(frozen=True)
class TrainingSpec:
    mode: Literal["async"]
    epochs: int | None
    steps: int | None
    """Exactly one of ``epochs`` and ``steps`` is given; a step is one batch of one worker."""
    batch_size: int
    learning_rate: float
    optimizer: Literal["sgd", "momentum", "adam", "adamw", "adagrad"]
    checkpoint_every_steps: int
    start_deadline_s: int
    deadline_s: int

    def total_steps(self, examples: int) -> int:
        """Batches that all workers together train on, given the number of training examples."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None  # load() refuses a document with neither
        return math.ceil(self.epochs * examples / self.batch_size)


@dataclass(frozen=True)
class GangSpec:
    workers: int
    parameter_servers: int
    chief_slots: int
    ps_slots: int
    worker_slots: int
    worker_gpus: int


@dataclass(frozen=True)
class SlotSpec:
    cpu: str
    memory: str
    scratch: str


@dataclass(frozen=True)
class GateSpec:
    metric: str
    minimum: float
    beat_champion: bool
    on_reject: Literal["reject", "fail"]


@dataclass(frozen=True)
class ExportSpec:
    model: str


@dataclass(frozen=True)
class RunSpec:
    version: int
    run: str
    dag_id: str
    run_id: str
    tenant: str
    pipeline: str
    created: datetime
    requested: bool
    seed: int
    storage: StorageSpec
    dataset: DatasetSpec
    code: CodeSpec | None
    model: ModelSpec
    training: TrainingSpec
    gang: GangSpec
    slot: SlotSpec
    image: str | None
    step_slots: int
    evaluation_batch_size: int
    gate: GateSpec
    export: ExportSpec


def load(text: str) -> RunSpec:
    """Reads a run spec.

    Raises:
        UserError: not JSON, another version, or keys that are missing, unknown or of the wrong kind (all of them are named).
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UserError(f"run spec: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"run spec: expected an object, got {_kind(document)}")
    if document.get("version") != VERSION:
        raise UserError(
            f"run spec: version {document.get('version')!r}: this trainer reads version {VERSION} only; "
            "use a trainer image of the same release as the platform"
        )
    problems: list[str] = []
    spec = _object(RunSpec, document, "", problems)
    if not problems:
        problems += _cross_checks(spec)
    if problems:
        raise UserError("run spec: " + "; ".join(problems))
    return typing.cast(RunSpec, spec)


def _cross_checks(spec: RunSpec) -> list[str]:
    problems = []
    if (spec.training.epochs is None) == (spec.training.steps is None):
        problems.append(f"training: exactly one of epochs ({spec.training.epochs}) and steps ({spec.training.steps}) must be given")
    positive = {
        "dataset.shards": spec.dataset.shards,
        "dataset.shard_tasks": spec.dataset.shard_tasks,
        "training.batch_size": spec.training.batch_size,
        "training.learning_rate": spec.training.learning_rate,
        "training.checkpoint_every_steps": spec.training.checkpoint_every_steps,
        "gang.workers": spec.gang.workers,
        "gang.parameter_servers": spec.gang.parameter_servers,
        "evaluation_batch_size": spec.evaluation_batch_size,
    }
    problems += [f"{key} is {value}: must be greater than 0" for key, value in positive.items() if not value > 0]
    for key, amount in (("training.epochs", spec.training.epochs), ("training.steps", spec.training.steps)):
        if amount is not None and amount < 1:
            problems.append(f"{key} is {amount}: must be at least 1")
    return problems


def _object(cls: type, document: Mapping[str, Any], path: str, problems: list[str]) -> Any:
    """An instance of the dataclass ``cls``, or None when anything in it was wrong (``problems`` says what)."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    before = len(problems)
    for name in names:
        if name not in document:
            problems.append(f"key {_join(path, name)} is missing")
    for name in document:
        if name not in hints:
            problems.append(f"key {_join(path, name)} is unknown")
    values = {name: _value(hints[name], document[name], _join(path, name), problems) for name in names if name in document}
    return cls(**values) if len(problems) == before else None


def _value(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        return _value(next(option for option in options if option is not type(None)), value, path, problems)
    if origin is Literal:
        allowed = typing.get_args(hint)
        if value not in allowed:
            problems.append(f"key {path} is {value!r}: expected one of {', '.join(map(str, allowed))}")
        return value
    if dataclasses.is_dataclass(hint):
        if isinstance(value, dict):
            return _object(typing.cast(type, hint), value, path, problems)
        problems.append(f"key {path}: expected an object, got {_kind(value)}")
        return None
    if hint is datetime:
        return _moment(value, path, problems)
    if origin is not None:  # Mapping[str, Any]: free-form, the reader of it checks
        if not isinstance(value, dict):
            problems.append(f"key {path}: expected an object, got {_kind(value)}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # bool is an int to Python, and never to us.
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        problems.append(f"key {path}: expected {_NAMES[hint]}, got {_kind(value)}")
    return value


def _moment(value: Any, path: str, problems: list[str]) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        problems.append(f"key {path} is {value!r}: expected a time such as 2026-01-01T00:00:00Z")
        return None
    if moment.tzinfo is None:
        problems.append(f"key {path} is {value!r}: a time needs its zone, e.g. a Z at the end")
    return moment


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_NAMES: Final[dict[type, str]] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"{_NAMES.get(type(value), type(value).__name__)} ({value!r})"
