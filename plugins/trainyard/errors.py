"""Every error that Trainyard's orchestration raises on purpose.

::

    TrainyardError
    ├── ConfigError (ValueError)     a file or a form says something that cannot be: fix the input
    ├── RefusedError                 the request is well-formed and may not be done: fix the request
    ├── NotFoundError                a run, model, package or version that does not exist
    ├── ConflictError                an object was written by someone else first: read it again
    ├── UnavailableError             S3, the cluster or Airflow does not answer: try again
    └── GangError                    a gang ended badly; carries the typed reason
"""

from __future__ import annotations

from collections.abc import Sequence


class TrainyardError(Exception):
    """Base of all; its text is meant for the person who asked, and is complete in itself."""


class ConfigError(TrainyardError, ValueError):
    """One or more settings that cannot be used.

    Each problem is one line: file, key, value, and the way out.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class RefusedError(TrainyardError):
    """Raised when a well-formed request asks for what it may not have, with the arithmetic or rule in the text."""


class NotFoundError(TrainyardError):
    """Raised when what was named does not exist; the text lists what does."""


class ConflictError(TrainyardError):
    """Raised when a conditional write found the object changed, or there already: another writer was first, and that one counts."""


class UnavailableError(TrainyardError):
    """Raised when a service does not answer in time: the same call may work later."""


class GangError(TrainyardError):
    """Raised when a gang ended without a good result.

    ``reason`` is a word of :class:`trainyard.contract.exit_codes.ExitCode` or of the operator (``StartDeadline``, ``Deadline``, ``Lost``).
    """

    def __init__(self, reason: str, message: str, *, final: bool) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.final = final
