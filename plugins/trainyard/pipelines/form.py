"""The trigger form of a pipeline: what may be changed for one run, within which limits, and what a person gave.

Airflow checks each field by its own JSON schema; what several fields add up to, :mod:`trainyard.pipelines.spec` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainyard.errors import ConfigError
from trainyard.settings import Dataset, Pipeline, Tenant
from trainyard.settings.reading import did_you_mean

NEWEST: Final = "newest"
"""In the form: the version released last when the run starts. No version can be called so."""
MODES: Final = ("async",)
BATCH_LIMIT: Final = 1_000_000
EPOCHS_LIMIT: Final = 100_000
STEPS_LIMIT: Final = 1_000_000_000
RATE_LIMIT: Final = 1000


@dataclass(frozen=True)
class Form:
    """One run's values; None stands for the pipeline's own."""

    dataset_version: str | None = None
    mode: str | None = None
    epochs: int | None = None
    steps: int | None = None
    workers: int | None = None
    parameter_servers: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Form:
        """What a person gave (the run's conf), without what the form only shows as default.

        Raises:
            ConfigError: unknown fields, each with the one that was probably meant.
        """
        known = cls.__dataclass_fields__
        unknown = [f"the form has no field '{key}': {did_you_mean(key, known)}" for key in given if key not in known]
        if unknown:
            raise ConfigError(unknown)
        values = {key: value for key, value in given.items() if value is not None}
        if values.get("dataset_version") == NEWEST:
            del values["dataset_version"]
        return cls(**values)


@dataclass(frozen=True)
class Field:
    """One field of the form, free of Airflow: its default, its JSON schema and its words."""

    default: Any
    title: str
    help: str
    schema: dict[str, Any]


def fields(pipeline: Pipeline, tenant: Tenant, dataset: Dataset) -> dict[str, Field]:
    """The form: its limits are those of the tenant and the dataset, so that most mistakes are refused before there is a run."""
    training, gang = pipeline.training, pipeline.gang
    versions = [name for name, _ in reversed(dataset.by_release())]
    others = gang.chief_slots + gang.ps_slots
    most_workers = min(dataset.shards, (tenant.slots - others) // gang.worker_slots)
    if gang.worker_gpus:
        most_workers = min(most_workers, tenant.gpus // gang.worker_gpus)
    most_workers = max(1, most_workers)
    most_ps = max(1, (tenant.slots - gang.chief_slots - gang.worker_slots) // gang.ps_slots)
    whole = {"type": "integer", "minimum": 1}
    optional = {"type": ["null", "integer"], "minimum": 1}
    draining = f"Tenant {tenant.name} is draining: no new run begins. " if tenant.state == "draining" else ""
    slots = f"tenant {tenant.name} has {tenant.slots} slots; this pipeline's own gang is {gang.arithmetic()}"
    return {
        "dataset_version": Field(
            NEWEST,
            "Dataset version",
            f"{draining}Version of {dataset.name}. `{NEWEST}` is the one released last. A partition key given beside it must say the same.",
            {"type": "string", "enum": [NEWEST, *versions]},
        ),
        "mode": Field(training.mode, "Mode", "How workers share gradients.", {"type": "string", "enum": list(MODES)}),
        "epochs": Field(
            training.epochs, "Epochs", "Passes over the train split. Give this or steps.", optional | {"maximum": EPOCHS_LIMIT}
        ),
        "steps": Field(
            training.steps, "Steps", "Batches in all, counted over the workers. Give this or epochs.", optional | {"maximum": STEPS_LIMIT}
        ),
        "workers": Field(gang.workers, "Workers", f"At most one a shard ({dataset.shards}); {slots}.", whole | {"maximum": most_workers}),
        "parameter_servers": Field(
            gang.parameter_servers, "Parameter servers", f"They hold the weights; {slots}.", whole | {"maximum": most_ps}
        ),
        "batch_size": Field(training.batch_size, "Batch size", "Examples of one step of one worker.", whole | {"maximum": BATCH_LIMIT}),
        "learning_rate": Field(
            training.learning_rate,
            "Learning rate",
            "The optimizer's step size.",
            {"type": "number", "exclusiveMinimum": 0, "maximum": RATE_LIMIT},
        ),
    }


def gang_of(shape: Mapping[str, int], given: Mapping[str, Any] | None) -> int:
    """Slots of the gang that a run's conf asks for, on top of the pipeline's own ``shape``; what is not a number is not ours to judge."""

    def count(name: str) -> int:
        value = (given or {}).get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else shape[name]

    workers, servers = count("workers"), count("parameter_servers")
    return shape["chief_slots"] + servers * shape["ps_slots"] + workers * shape["worker_slots"]
