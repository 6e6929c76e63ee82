"""Every error that the execution side raises on purpose; each knows the exit code its process ends with.

::

    TrainerError
    ├── UserError           the user's code or the run spec is wrong                       40, final
    ├── DataError           a dataset version, or bytes that do not match their SHA-256    41, final
    ├── SupersededError     a newer generation holds the run                               42, final
    ├── ChiefGoneError      a PS or worker lost its chief                                  43
    ├── PeersMissingError   not all replicas came in time                                  44
    ├── StorageError        S3 did not answer or refused                                   45
    │   └── ConflictError   a conditional write lost: somebody else was first
    ├── DivergedError       the loss is not finite                                         47, final
    └── Skipped             nothing to do by design                                        90
"""

from __future__ import annotations

from typing import ClassVar

from trainer.exit_codes import ExitCode


class TrainerError(Exception):
    """Base of all; its text is one clear line for the person who owns the run, complete in itself."""

    exit_code: ClassVar[ExitCode]


class UserError(TrainerError):
    """Raised when the user's model code, builder or run spec is wrong; the text names file and line where there is one."""

    exit_code = ExitCode.USER_ERROR


class DataError(TrainerError):
    """Raised when a dataset version cannot be built, or when stored bytes do not match what was recorded about them."""

    exit_code = ExitCode.DATA_ERROR


class SupersededError(TrainerError):
    """Raised when a newer generation holds the run."""

    exit_code = ExitCode.SUPERSEDED


class ChiefGoneError(TrainerError):
    """Raised by a PS or worker whose chief was there and is gone."""

    exit_code = ExitCode.CHIEF_GONE


class PeersMissingError(TrainerError):
    """Raised when the start deadline passed; the text names the missing replicas."""

    exit_code = ExitCode.PEERS_MISSING


class StorageError(TrainerError):
    """Raised when S3 does not answer in time or refuses; the text names endpoint, bucket and key."""

    exit_code = ExitCode.STORAGE_ERROR


class ConflictError(StorageError):
    """Raised when a conditional write lost. Whoever writes conditionally catches it, reads again and decides anew."""


class DivergedError(TrainerError):
    """Raised when the loss is not finite."""

    exit_code = ExitCode.DIVERGED


class Skipped(TrainerError):
    """Raised when a step has nothing to do by design."""

    exit_code = ExitCode.SKIPPED
