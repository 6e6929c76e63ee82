"""What the command's exit code says, so that scripts need not read its text."""

from __future__ import annotations

from enum import IntEnum

from trainyard.errors import RefusedError, TrainyardError, UnavailableError


class Exit(IntEnum):
    """Exit codes of ``trainyard``. They are a promise: scripts of other people read them."""

    OK = 0
    RUN_FAILED = 1
    """What was asked for was started and went wrong: a failed run, a check of ``doctor``, a model whose bytes do not match."""
    BAD_INPUT = 2
    """The command line, a file or a name is wrong: nothing was started."""
    NOT_REACHABLE = 3
    """Airflow, or what it needs, does not answer: the same command may work later."""
    REFUSED = 4
    """Not logged in, or logged in as someone who may not do this."""
    INTERRUPTED = 130
    """Ctrl-C."""


class RunFailedError(TrainyardError):
    """Raised when what was started ended badly; its text is the reason."""


def exit_code(error: TrainyardError) -> Exit:
    """The exit code of an error that ends the command."""
    if isinstance(error, RunFailedError):
        return Exit.RUN_FAILED
    if isinstance(error, UnavailableError):
        return Exit.NOT_REACHABLE
    if isinstance(error, RefusedError):
        return Exit.REFUSED
    return Exit.BAD_INPUT
