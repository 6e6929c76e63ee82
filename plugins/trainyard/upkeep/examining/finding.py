"""What one check saw, and what is to be done about it: the doctor's only result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed", "not_applicable", "not_tried"]
"""``not_applicable``: this cluster cannot have it, and need not; ``not_tried``: something that it stands on has failed."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's."""

    state: State
    saw: str
    """What was seen, with the cluster's or the server's own words; never a secret."""
    todo: str = ""
    """What to do about it; empty where all is well."""
    check: str = ""
    """Name of the check; filled in by the examination."""


def well(saw: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", saw)


def wrong(saw: str, todo: str) -> Finding:
    """Runs would fail, or would not be what they seem."""
    return Finding("failed", saw, todo)


def doubtful(saw: str, todo: str) -> Finding:
    """Runs work; somebody should know this all the same."""
    return Finding("warning", saw, todo)


def absent(reason: str) -> Finding:
    """There is nothing to try on this cluster."""
    return Finding("not_applicable", reason)
