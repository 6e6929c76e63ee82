"""``config/tenants/<tenant>.yaml``: one team, and the one number that all its limits come from."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainyard.contract.names import PLATFORM_TEAM
from trainyard.settings.base import Cpu, Memory, Section, TenantName, Text
from trainyard.settings.quantities import cpu_millis, memory_bytes

RESERVED: Final = frozenset({PLATFORM_TEAM})
"""Names that mean something of the platform's own."""
LEAST_CPU_MILLIS: Final = 100
LEAST_MEMORY: Final = 512 * 2**20
"""Importing TensorFlow alone takes ≈ 320 MB of its own beside its mapped libraries (measured): a slot below this cannot run a step."""

MemberName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9._-]{0,38}[a-z0-9]$")]
"""2–40 characters; no ``:``, ``,`` or ``|``, which separate users in Airflow's own setting."""


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
    state: Literal["active"] = "active"
    """`active`: its pipelines run."""
    slots: int = Field(ge=1, le=10_000)
    """How many slots the tenant has: the pool's size and, times `slot`, the namespace's quota."""
    slot: Slot
    """What one slot is worth."""
    members: dict[MemberName, Literal["viewer", "user"]] = Field(default_factory=dict)
    """People by login name. `viewer` reads the team's runs, `user` also starts and stops them. Nobody in a tenant may change its limits."""

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
