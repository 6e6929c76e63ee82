"""What a sync did or, in a dry run, would do: one :class:`Change` a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Action = Literal["create", "update", "delete", "missing"]


@dataclass(frozen=True)
class Change:
    """One difference between the files and the world."""

    what: str
    """Kind and name: ``namespace tenant-vision``."""
    action: Action
    """``missing``: something that only the administrator can give."""
    detail: str
    """What is set, in words; never a secret."""
    restarts_airflow: bool = False
    """Airflow reads this at its start only."""

    def __str__(self) -> str:
        return f"{self.action} {self.what}: {self.detail}"


def needs_restart(changes: Iterable[Change]) -> bool:
    """Whether Airflow's processes must be started again for the changes to count."""
    return any(change.restarts_airflow for change in changes)
