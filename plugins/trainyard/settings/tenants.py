"""``config/tenants/<tenant>.yaml``: one team, and the one number that all its limits come from."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainyard.contract.names import PLATFORM_TEAM
from trainyard.settings.base import Cpu, Memory, Section, TenantName, Text
from trainyard.settings.defaults import PipelineDefaults
from trainyard.settings.quantities import cpu_millis, memory_bytes

RESERVED: Final = frozenset({PLATFORM_TEAM})
"""Names that mean something of the platform's own."""
LEAST_CPU_MILLIS: Final = 100
LEAST_MEMORY: Final = 512 * 2**20
"""Importing TensorFlow alone takes ≈ 320 MB of its own beside its mapped libraries (measured): a slot below this cannot run a step."""

MemberName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9._-]{0,38}[a-z0-9]$")]
"""2–40 characters; no ``:``, ``,`` or ``|``, which separate users in Airflow's own setting."""


ImagePattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-zA-Z0-9._/:@-]*\*?$")]
"""An image reference; a ``*`` at its end stands for any rest."""


class Slot(Section):
    """What one slot is worth. Every pod has requests = limits = its slots × this."""

    cpu: Cpu
    """Cores of one slot, as `750m` or `2`."""
    memory: Memory
    """Memory of one slot, as `2Gi`."""
    scratch: Memory
    """Size of the working directory (emptyDir) of one slot, as `2Gi`."""

    @model_validator(mode="after")
    def _enough_for_a_pod(self) -> Self:
        if cpu_millis(self.cpu) < LEAST_CPU_MILLIS:
            raise ValueError(f"cpu {self.cpu} is too small for any pod: give {LEAST_CPU_MILLIS}m or more")
        if memory_bytes(self.memory) < LEAST_MEMORY:
            raise ValueError(f"memory {self.memory} is too small for TensorFlow to start: give 512Mi or more")
        return self


class Retention(Section):
    """How long what its runs leave in S3 is kept. Without a number it stays for ever."""

    runs_days: int | None = Field(default=None, ge=1, le=36_500)
    """Days after its end until a run's folder goes: spec, logs, metrics, checkpoints. Exported models are not in it."""
    model_versions: int | None = Field(default=None, ge=1, le=100_000)
    """How many versions of each exported model stay, the newest ones; the champion stays beside them, whatever its age."""


class Extras(Section):
    """What else its namespace may hold, beside pods. Nothing of Trainyard's needs any: they are for the administrator's own things."""

    node_ports: int = Field(default=0, ge=0, le=1_000)
    """Ports of Services on every node."""
    load_balancers: int = Field(default=0, ge=0, le=1_000)
    """Services of type LoadBalancer."""
    volume_claims: int = Field(default=0, ge=0, le=1_000)
    """PersistentVolumeClaims."""


class Tenant(Section):
    """One team: its people, and how much it may run at once."""

    name: TenantName = Field(exclude=True)
    """The file's stem; not written in the file."""
    description: Text | None = None
    """One line for people."""
    owner: Text
    """Who answers for this tenant."""
    contact: Text
    """Where to reach the owner: an address or a channel."""
    state: Literal["active", "draining"] = "active"
    """`active`: its pipelines run. `draining`: no new run begins, those that run end; then its quota is 0 and its file can go."""
    priority: int = Field(default=0, ge=0, le=9)
    """Whose task Airflow starts first when several wait for the same worker: 9 before 0. It takes no slot from anybody."""
    slots: int = Field(ge=1, le=10_000)
    """How many slots the tenant has: the pool's size and, times `slot`, the namespace's quota."""
    slot: Slot
    """What one slot is worth."""
    gpus: int = Field(default=0, ge=0, le=10_000)
    """How many GPUs it may use at once, beside its slots. Only workers get any (a pipeline's `gang.worker_gpus`)."""
    images: tuple[ImagePattern, ...] = ()
    """Images that its pipelines may name as their `image`, beside the cluster's own; a `*` at the end stands for any rest, as
    `registry.example.com/vision/trainer:*`."""
    retention: Retention = Field(default_factory=Retention)
    extras: Extras = Field(default_factory=Extras)
    defaults: PipelineDefaults = Field(default_factory=PipelineDefaults)
    members: dict[MemberName, Literal["viewer", "user"]] = Field(default_factory=dict)
    """People by login name. `viewer` reads the team's runs, `user` also starts and stops them. Nobody in a tenant may change its limits."""

    def allows_image(self, image: str) -> bool:
        """Whether a pipeline of its may name ``image``."""
        return any(image.startswith(one[:-1]) if one.endswith("*") else image == one for one in self.images)

    @model_validator(mode="after")
    def _names_that_are_taken(self) -> Self:
        if self.name in RESERVED:
            raise ValueError(f"the name '{self.name}' is the platform's own: rename the file")
        if self.name.endswith("-models"):
            # `<prefix>-<tenant>-models` is the models bucket of `<tenant>`.
            raise ValueError(f"the name '{self.name}' ends in -models, as models buckets do: rename the file")
        if "admin" in self.members:
            raise ValueError("members: 'admin' is the platform administrator's login: choose another name")
        return self
