"""A chief that lost a parameter server starts itself anew, in the same process, and restores its newest checkpoint.

The variables of the lost PS are gone, so everything that TensorFlow holds is worthless. A second strategy in the same interpreter works
most of the time, and not when a worker is away at that moment too: the old coordinator's thread goes on repairing the one cluster that a
process has, while the new one is made on it (seen: a crash inside TensorFlow, and a thread dead with an AssertionError). ``exec`` leaves
nothing of the old, and costs nothing: the PS needs as long to import TensorFlow as the chief does.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NoReturn

from trainer.errors import PeersMissingError

VARIABLE: Final = "TRAINYARD_PS_LOST"
MOST: Final = 5
"""Losses in a row without a checkpoint in between."""


@dataclass(frozen=True)
class Losses:
    """What a chief that started itself anew was told by its earlier self."""

    count: int = 0
    """In a row, without a checkpoint in between."""
    saved: int = 0
    """The newest checkpoint at the last of them."""

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Losses:
        return cls(**json.loads(environ[VARIABLE])) if environ.get(VARIABLE) else cls()

    def another(self, saved: int, why: str) -> Losses:
        """One more, when the newest checkpoint is ``saved``.

        Raises:
            PeersMissingError: too many in a row.
        """
        count = 1 if saved > self.saved else self.count + 1
        if count > MOST:
            raise PeersMissingError(f"a parameter server was lost {count} times, with no checkpoint in between: {why}")
        return Losses(count, saved)


def start(losses: Losses, execute: Callable[[str, list[str]], NoReturn] = os.execv) -> NoReturn:
    """Replaces this process by the same command; does not return."""
    os.environ[VARIABLE] = json.dumps(asdict(losses))
    sys.stdout.flush()
    sys.stderr.flush()
    # Nothing but the standard streams goes over: a listening socket of TensorFlow's would keep the chief's port.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                fcntl.fcntl(int(name), fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            except OSError:  # closed meanwhile, like the one that listed them
                pass
    execute(sys.executable, [sys.executable, *sys.orig_argv[1:]])
