"""The run spec: the one JSON document handed to every pod of a run, written once by ``check`` and never changed.

``config/schemas/run_spec.schema.json`` is generated from these models; the trainer reads the document by its own code. A change
that an older trainer cannot read raises ``VERSION``.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

VERSION: Final = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class StorageSpec(_Frozen):
    """Where the run's objects lie; credentials come from the pod's Secret, never from here."""

    endpoint: str | None
    """URL as pods see it; null for AWS' own."""
    region: str
    bucket: str
    models_bucket: str


class DatasetSpec(_Frozen):
    name: str
    version: str
    released: AwareDatetime
    """The version's release time: a champion trained on a newer release is never replaced."""
    builder: str
    """``module:Class`` of a tensorflow_datasets builder."""
    config: dict[str, Any]
    train_split: str
    evaluation_split: str
    shards: int = Field(ge=1)
    """Number of shard files of the train split."""
    shard_tasks: int = Field(ge=1)
    """Number of ``shard`` pods; task i writes the shards j with j % shard_tasks == i."""
    layout: str
    """Hash over everything that changes the bytes: builder, config, shards, shard_tasks, format version."""


class CodeSpec(_Frozen):
    """A published package of the user, resolved to one digest."""

    package: str
    sha256: str
    key: str


class ModelSpec(_Frozen):
    build: str
    """``module:function``, called as ``function(config) -> keras.Model``; ``trainer.models.<name>:build`` for the zoo."""
    config: dict[str, Any]


class TrainingSpec(_Frozen):
    mode: Literal["async"]
    epochs: int | None = Field(ge=1)
    steps: int | None = Field(ge=1)
    """Exactly one of ``epochs`` and ``steps`` is given; a step is one batch of one worker."""
    batch_size: int = Field(ge=1)
    """Examples of one step of one worker."""
    learning_rate: float = Field(gt=0)
    optimizer: Literal["sgd", "momentum", "adam", "adamw", "adagrad"]
    checkpoint_every_steps: int = Field(ge=1)
    start_deadline_s: int = Field(ge=10)
    """From the gang's creation until every replica must run."""
    deadline_s: int = Field(ge=30)
    """activeDeadlineSeconds of the chief's Job."""


class GangSpec(_Frozen):
    workers: int = Field(ge=1)
    parameter_servers: int = Field(ge=1)
    chief_slots: int = Field(ge=1)
    ps_slots: int = Field(ge=1)
    worker_slots: int = Field(ge=1)
    worker_gpus: int = Field(ge=0)
    """GPUs of one worker's pod; nothing else of a run has any."""

    @property
    def slots(self) -> int:
        return self.chief_slots + self.parameter_servers * self.ps_slots + self.workers * self.worker_slots


class SlotSpec(_Frozen):
    """What one slot is worth: Kubernetes quantities."""

    cpu: str
    memory: str
    scratch: str


class GateSpec(_Frozen):
    metric: str
    minimum: float
    beat_champion: bool
    on_reject: Literal["reject", "fail"]


class ExportSpec(_Frozen):
    model: str


class RunSpec(_Frozen):
    version: Literal[1] = VERSION
    run: str
    dag_id: str
    run_id: str
    tenant: str
    pipeline: str
    created: AwareDatetime
    requested: bool
    """True when a person asked (form, backfill, command): such a run trains even if nothing changed."""
    seed: int
    storage: StorageSpec
    dataset: DatasetSpec
    code: CodeSpec | None
    model: ModelSpec
    training: TrainingSpec
    gang: GangSpec
    slot: SlotSpec
    image: str | None
    """The tenant's own trainer image; None: the cluster's."""
    step_slots: int = Field(ge=1)
    evaluation_batch_size: int = Field(ge=1)
    gate: GateSpec
    export: ExportSpec

    def to_json(self) -> str:
        """The document as pods get it: keys sorted, so equal specs are equal text."""
        import json

        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
