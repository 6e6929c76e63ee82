"""``config/pipelines/<pipeline>.yaml``: one training DAG: a tenant's model on a dataset, its gang, its gate and its schedule.

The sections carry the same field names as the run spec's (:mod:`trainyard.contract.run_spec`); a test holds them together.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainyard.settings.base import PACKAGE_PATTERN, Image, ModuleAttribute, Name, Section, TenantName, Text

ZOO_PREFIX = "trainer.models."
_ANY_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
"""Where the search for a schedule's next time starts; it looks decades ahead, so that leap days are found from any day."""


def _check_cron(text: str) -> str:
    from croniter import CroniterBadDateError, croniter  # type: ignore[import-untyped]

    if not text.startswith("@") and len(text.split()) != 5:
        raise ValueError("give five fields (minute hour day month weekday), as '0 6 * * 1', or @daily, @weekly, @monthly")
    if not croniter.is_valid(text):
        raise ValueError("is no cron expression: give five fields (minute hour day month weekday), as '0 6 * * 1'")
    try:
        croniter(text, _ANY_DAY).get_next(dt.datetime)
    except CroniterBadDateError:
        raise ValueError("never comes: no month it names has such a day") from None
    return text


Cron = Annotated[str, AfterValidator(_check_cron)]


class Model(Section):
    """Which model is trained."""

    build: ModuleAttribute
    """`module:function`, called as `function(config) -> keras.Model`; `trainer.models.<name>:build` for one of Trainyard's own."""
    package: Annotated[str, StringConstraints(pattern=PACKAGE_PATTERN)] | None = None
    """The published package that holds `build`, or null for a model of Trainyard's own."""
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of a published wheel to pin; null takes the newest published when a run starts."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Passed to `build` as it is."""

    @model_validator(mode="after")
    def _package_holds_build(self) -> Self:
        top = self.build.split(":")[0].split(".")[0]
        if self.package is None and not self.build.startswith(ZOO_PREFIX):
            raise ValueError(f"build '{self.build}' is not one of Trainyard's own models ({ZOO_PREFIX}…): add 'package: {top}'")
        if self.package is not None and top != self.package:
            raise ValueError(
                f"build '{self.build}' does not lie in package '{self.package}': write build: {self.package}.<module>:<function>"
            )
        if self.digest is not None and self.package is None:
            raise ValueError("digest pins a published package, and there is none: remove digest or name the package")
        return self


class Training(Section):
    """How it is trained."""

    mode: Literal["async"] = "async"
    """`async`: each worker pushes its gradients on its own."""
    epochs: int | None = Field(default=None, ge=1, le=100_000)
    """Passes over the train split. Give either this or `steps`."""
    steps: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Batches in all, counted over the workers. Give either this or `epochs`."""
    batch_size: int = Field(ge=1, le=1_000_000)
    """Examples of one step of one worker."""
    learning_rate: float = Field(gt=0, le=1000)
    """The optimizer's step size."""
    optimizer: Literal["sgd", "momentum", "adam", "adamw", "adagrad"] = "adam"
    """With Keras' own defaults."""
    checkpoint_every_steps: int = Field(default=100, ge=1)
    """Steps between two checkpoints; a restart repeats at most so many."""
    start_deadline_s: int = Field(default=300, ge=10, le=86_400)
    """Seconds from the gang's creation until every replica must run."""
    deadline_s: int = Field(default=3600, ge=30, le=30 * 86_400)
    """Seconds the gang may live."""

    @model_validator(mode="after")
    def _epochs_or_steps(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            given = "neither epochs nor steps is given" if self.epochs is None else "epochs and steps are both given"
            raise ValueError(f"{given}: give exactly one of them")
        if self.start_deadline_s > self.deadline_s:
            raise ValueError(f"start_deadline_s {self.start_deadline_s} is more than deadline_s {self.deadline_s}")
        return self


class Gang(Section):
    """The processes of one training, all or none of which run."""

    workers: int = Field(ge=1, le=1_000)
    """Replicas that compute gradients; not more than the dataset has shards."""
    parameter_servers: int = Field(ge=1, le=1_000)
    """Replicas that hold the weights."""
    chief_slots: int = Field(default=1, ge=1)
    """Slots of the chief's pod."""
    ps_slots: int = Field(default=1, ge=1)
    """Slots of one parameter server's pod."""
    worker_slots: int = Field(default=1, ge=1)
    """Slots of one worker's pod."""
    worker_gpus: int = Field(default=0, ge=0, le=64)
    """GPUs of one worker's pod, of the tenant's `gpus`. Neither parameter servers nor steps get any."""

    @property
    def slots(self) -> int:
        """Slots of the gang as a whole: what its task takes from the tenant's pool at once."""
        return self.chief_slots + self.parameter_servers * self.ps_slots + self.workers * self.worker_slots

    @property
    def gpus(self) -> int:
        """GPUs of the gang as a whole."""
        return self.workers * self.worker_gpus

    def arithmetic(self) -> str:
        """The sum in words, e.g. ``2 workers × 1 + 2 PS × 1 + chief 1 = 5 slots``."""
        workers = f"{self.workers} worker{'s' if self.workers != 1 else ''} × {self.worker_slots}"
        return f"{workers} + {self.parameter_servers} PS × {self.ps_slots} + chief {self.chief_slots} = {self.slots} slots"


class Gate(Section):
    """What a trained model must reach before it is exported."""

    metric: Literal["accuracy"] = "accuracy"
    """The metric on the evaluation split."""
    minimum: float = Field(gt=0, le=1)
    """The least value that passes. There is no default: a gate without one would let anything pass."""
    beat_champion: bool = False
    """Whether the value must also be higher than the present champion's; an equal one is rejected then."""
    on_reject: Literal["reject", "fail"] = "reject"
    """`reject`: the run ends green with outcome `rejected`; `fail`: it ends red."""


class Export(Section):
    """Where an accepted model goes."""

    model: Name
    """Folder in the tenant's models bucket; versions are numbered in it."""


class Pipeline(Section):
    """One training DAG."""

    name: Name = Field(exclude=True)
    """The file's stem; not written in the file."""
    tenant: TenantName
    """The team whose slots, buckets and people it uses: a file in `tenants/`."""
    dataset: Name
    """What it is trained on: a file in `datasets/`."""
    description: Text
    """One line for people: the DAG's text in Airflow."""
    image: Image | None = None
    """A trainer image of the tenant's own (built FROM Trainyard's), which its `images` must allow; null: the cluster profile's. `gate` and
    `export` use the profile's always: they alone may write models."""
    model: Model
    training: Training
    gang: Gang
    step_slots: int = Field(default=1, ge=1)
    """Slots of every pod that is not in the gang (prepare, shard, evaluate, …)."""
    evaluation_batch_size: int = Field(default=256, ge=1, le=1_000_000)
    """Examples scored at once by `evaluate`."""
    gate: Gate
    export: Export
    priority: int = Field(default=0, ge=0, le=9)
    """Which of the tenant's pipelines goes first where several wait for slots: 9 before 0. It stops nothing that runs."""
    schedule: Cron | None = None
    """Cron expression in UTC at which the newest dataset version is trained; null: only on request."""
    retrain: Literal["changed", "always"] = "changed"
    """`changed`: a scheduled run trains only if version, code or parameters differ from the last good run."""
    seed: int = Field(default=1, ge=0, le=2**31 - 1)
    """Of initial weights and shuffling."""
