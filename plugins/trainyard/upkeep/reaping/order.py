"""What the reaper's pod is told: the strays by uid, and where tenants' buckets are. Nothing else is decided there.

Small enough for one environment variable (the kernel takes 128 KiB in one string): what does not fit is for the next round.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainyard.upkeep.reaping.judging import Judgement, Stray

VARIABLE: Final = "TRAINYARD_REAP_ORDER"
"""Of the reaper's pod alone: the trainer knows no such variable."""
MOST_STRAYS: Final = 100
"""Runs in one round: some 40 KiB of text."""
UPLOADS_AFTER_S: Final = 24 * 3600
"""A multipart upload that began longer ago is nobody's any more: the longest step may run 6 h."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StrayRun(_Frozen):
    """One run of which everything goes, if what is there is still what was judged."""

    tenant: str
    run: str
    reason: Literal["absent", "ended"]
    said: str
    roots: dict[str, str]


class Order(_Frozen):
    """The document in :data:`VARIABLE`."""

    version: Literal[1] = 1
    instance: str
    dry_run: bool
    endpoint: str | None
    """URL of S3 as pods see it; None for AWS' own."""
    region: str
    buckets: dict[str, str]
    """Tenant → data bucket."""
    strays: tuple[StrayRun, ...] = ()
    uploads_after_s: int | None = Field(default=None, ge=0)
    """End multipart uploads that began so many seconds ago; None: do not look."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.strays and self.uploads_after_s is None


def strays_of(judgement: Judgement) -> tuple[StrayRun, ...]:
    """As many strays as one order may hold."""

    def one(stray: Stray) -> StrayRun:
        return StrayRun(tenant=stray.tenant, run=stray.run, reason=stray.reason, said=stray.said, roots=stray.roots)

    return tuple(one(stray) for stray in judgement.strays[:MOST_STRAYS])
