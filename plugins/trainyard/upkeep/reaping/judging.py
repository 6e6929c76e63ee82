"""Which runs' objects are strays: the cluster's list against Airflow's word on each run. Pure but for the question itself."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from trainyard.upkeep.reaping.seen import Root

GRACE: Final = datetime.timedelta(minutes=5)
"""What is younger, or belongs to a run that ended later ago than this, is left alone: the other nets have their turn first."""
ENDED_STATES: Final = frozenset({"success", "failed"})

Reason = Literal["absent", "ended"]


@dataclass(frozen=True)
class RunState:
    """Airflow's word on one run."""

    state: str
    ended: datetime.datetime | None


Ask = Callable[[str, str], RunState | None]
"""(dag_id, run_id) → its state, or None where Airflow has no such run. Raises if Airflow does not answer."""


@dataclass(frozen=True)
class Stray:
    """A run of which nothing should be in the cluster."""

    tenant: str
    run: str
    reason: Reason
    """``absent``: Airflow has no such run; ``ended``: it ended longer ago than the grace time."""
    said: str
    """The reason as a person would want to read it."""
    roots: dict[str, str]
    """uid → what it is; nothing that came later is touched."""


@dataclass
class Judgement:
    """What is to go, and how many runs and objects stay, by reason."""

    strays: list[Stray] = field(default_factory=list)
    live: int = 0
    """Runs that Airflow has not ended."""
    young: int = 0
    """Strays within the grace time."""
    foreign: int = 0
    """Objects of another deployment, or of none that is named: never touched."""
    unnamed: list[str] = field(default_factory=list)
    """Objects of ours that say of no run: never touched, since Airflow cannot be asked."""


def judge(found: Iterable[Root], instance: str, ask: Ask, now: datetime.datetime, grace: datetime.timedelta = GRACE) -> Judgement:
    """Ask Airflow about each run that something of ours is there of.

    Whatever ``ask`` raises is let through: half of the answers give no judgement at all.
    """
    result = Judgement()
    runs: dict[tuple[str, str, str, str], list[Root]] = {}
    for root in found:
        if root.instance != instance:
            result.foreign += 1
        elif not (root.run and root.dag_id and root.run_id):
            result.unnamed.append(f"{root.kind} {root.name} of tenant {root.tenant}")
        else:
            runs.setdefault((root.tenant, root.run, root.dag_id, root.run_id), []).append(root)
    judged = {key: (roots, ask(key[2], key[3])) for key, roots in sorted(runs.items())}
    # A label is a hash of both ids: should two runs ever share one, the living protects the other.
    living = {(tenant, run) for (tenant, run, *_), (_, state) in judged.items() if state and state.state not in ENDED_STATES}
    for (tenant, run, dag_id, run_id), (roots, state) in judged.items():
        if (tenant, run) in living:
            result.live += 1
            continue
        since = max([root.created for root in roots] + ([state.ended] if state and state.ended else []))
        if now - since <= grace:
            result.young += 1
            continue
        what = {root.uid: f"{root.kind} {root.name}" for root in roots}
        if state is None:
            result.strays.append(Stray(tenant, run, "absent", f"Airflow has no run {run_id} of {dag_id}", what))
        else:
            ended = f" at {state.ended.isoformat(timespec='seconds')}" if state.ended else ""
            result.strays.append(Stray(tenant, run, "ended", f"run {run_id} of {dag_id} ended as {state.state}{ended}", what))
    return result
