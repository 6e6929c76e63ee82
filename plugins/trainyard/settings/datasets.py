"""``config/datasets/<dataset>.yaml``: what is trained on: a builder, its released versions, and how it is cut into shards."""

from __future__ import annotations

from typing import Any, Self

from pydantic import AwareDatetime, Field, model_validator

from trainyard.settings.base import ModuleAttribute, Name, Section, Text, Version
from trainyard.settings.network import Address


class DatasetVersion(Section):
    """One version of a dataset."""

    released: AwareDatetime
    """When the version came out, with time zone, as `2026-01-01T00:00:00Z`. Two versions never have the same time."""


class Dataset(Section):
    """One dataset. A run is for one version of it."""

    name: Name = Field(exclude=True)
    """The file's stem; not written in the file."""
    description: Text
    """One line for people."""
    builder: ModuleAttribute
    """`module:Class` of a tensorflow_datasets builder."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Passed to the builder as keyword arguments."""
    versions: dict[Version, DatasetVersion] = Field(min_length=1)
    """Released versions; write them in quotes: `"1.0.0": {released: 2026-01-01T00:00:00Z}`."""
    train_split: Text = "train"
    """The builder's split that is trained on."""
    evaluation_split: Text = "test"
    """The builder's split that the gate's metrics are computed on."""
    shards: int = Field(ge=1, le=100_000)
    """Number of files the train split is cut into; a worker needs at least one."""
    shard_tasks: int = Field(default=1, ge=1, le=1_000)
    """Number of pods that write the shards side by side."""

    egress: tuple[Address, ...] = ()
    """Servers that its builder loads from: what `prepare` may reach beyond S3, as `[{cidr: 10.1.2.3/32, ports: [443]}]`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.shard_tasks > self.shards:
            raise ValueError(f"shard_tasks {self.shard_tasks} is more than shards {self.shards}: a task would have nothing to write")
        if self.train_split == self.evaluation_split:
            raise ValueError(f"train_split and evaluation_split are both '{self.train_split}': evaluate on examples not trained on")
        seen: dict[object, str] = {}
        for version, entry in self.versions.items():
            if entry.released in seen:
                raise ValueError(
                    f"versions {seen[entry.released]} and {version} were both released at {entry.released.isoformat()}: "
                    "release times are a backfill's identity and must differ"
                )
            seen[entry.released] = version
        return self

    def by_release(self) -> tuple[tuple[str, DatasetVersion], ...]:
        """All versions, the oldest release first."""
        return tuple(sorted(self.versions.items(), key=lambda item: item[1].released))

    @property
    def newest(self) -> str:
        """The version released last."""
        return self.by_release()[-1][0]
