"""Exit codes of trainer containers: the same table as ``trainyard/contract/exit_codes.py``; a contract test compares the two.

Codes 1–2 are the interpreter's own, 126–165 the shell's and signals': ours lie between.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Why a container of ours ended."""

    OK = 0
    USER_ERROR = 40
    """The user's model code or the run spec is wrong: a retry cannot help."""
    DATA_ERROR = 41
    """A dataset version that cannot be built, or bytes that do not match their SHA-256 after retries."""
    SUPERSEDED = 42
    """A newer generation holds the run: this replica has nothing more to say."""
    CHIEF_GONE = 43
    """A PS or worker lost its chief: it ends so that nothing is left."""
    PEERS_MISSING = 44
    """The chief's start deadline passed before all replicas were there."""
    STORAGE_ERROR = 45
    """S3 did not answer or refused: a retry may help."""
    PEER_FAILED = 46
    """The chief ended since another replica failed for good."""
    DIVERGED = 47
    """The loss is not finite: a retry from the same checkpoint would end the same way."""
    SKIPPED = 90
    """The step has nothing to do by design (export after a rejecting gate)."""
    KILLED = 137
    TERMINATED = 143


FINAL = frozenset({ExitCode.USER_ERROR, ExitCode.DATA_ERROR, ExitCode.SUPERSEDED, ExitCode.PEER_FAILED, ExitCode.DIVERGED})
"""A retry with the same inputs ends the same way."""


def is_final(code: int) -> bool:
    """Whether a retry of the same step is pointless."""
    return code in FINAL


def describe(code: int) -> str:
    """The code's word for logs and records, e.g. ``UserError``; ``Exit7`` for a code that is not ours."""
    try:
        return "".join(part.capitalize() for part in ExitCode(code).name.split("_"))
    except ValueError:
        return f"Exit{code}"
