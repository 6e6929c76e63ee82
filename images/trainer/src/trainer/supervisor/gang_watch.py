"""What a gang's supervisors tell each other through S3.

- ``generations/<n>/failed/<replica>.json``: a PS or worker that failed for good; the chief's supervisor sees it and ends the gang.
- ``generations/<n>/result.json``: how the generation ended, written once, by the chief's supervisor; the others see it and end.
- ``generation.json``: which generation holds the run; every supervisor of another one ends.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trainer.environment import CHIEF, Gang
from trainer.exit_codes import ExitCode, describe, is_final
from trainer.storage import keys
from trainer.supervisor.remote import Remote
from trainer.supervisor.watchers import Verdict, Watcher

POLL_S: Final = 1.0
PEER_POLL_S: Final = 2.0
"""A gang has many PS and workers, and at a good end their chief tells them faster through TensorFlow."""
CHIEF_RETURN_S: Final = 90.0
"""How long a PS or worker that was restarted waits for its chief: an import of TensorFlow on a small CPU limit, and then some."""
PUBLISH_S: Final = 60.0
"""How long an end is offered to S3 before it is given up."""
RESULT: Final = Path("result.json")
"""Written by the chief's child into its current directory at its good end."""


class GangWatch(Watcher):
    """Looks for the gang's end in S3."""

    def __init__(self, remote: Remote, gang: Gang) -> None:
        super().__init__("gang", POLL_S if gang.role == CHIEF else PEER_POLL_S)
        self._remote, self._gang, self._run = remote, gang, remote.place.run
        self._looked = False

    def look(self) -> Verdict | None:
        bucket, number = self._remote.bucket(), self._gang.generation
        holder = bucket.get_json(keys.generation(self._run))
        # The operator writes it before the first pod exists, so an absent one means that the run is being taken away.
        if holder is None or holder.get("generation") != number:
            says = "no generation" if holder is None else f"generation {holder.get('generation')}"
            return Verdict(ExitCode.SUPERSEDED, f"{says} holds the run, this is generation {number}")
        if self._gang.role != CHIEF or not self._looked:
            # The chief writes it: only one that was replaced after its end finds it, at its first look.
            result = bucket.get_json(keys.generation_result(self._run, number))
            if result is not None:
                return self._of_result(result)
        self._looked = True
        if self._gang.role == CHIEF:
            return self._of_failures()
        return None

    def _of_result(self, result: dict[str, Any]) -> Verdict:
        code = int(result["exit_code"])
        message = f"generation {self._gang.generation} has ended: {result.get('reason')}: {result.get('message', '')}".rstrip(": ")
        if self._gang.role == CHIEF:
            return Verdict(code, message)
        return Verdict(ExitCode.OK if code == ExitCode.OK else ExitCode.CHIEF_GONE, message)

    def _of_failures(self) -> Verdict | None:
        bucket = self._remote.bucket()
        for key, _, _ in bucket.list(keys.replica_failures(self._run, self._gang.generation)):
            failure = bucket.get_json(key) or {}
            replica = key.rsplit("/", 1)[-1].removesuffix(".json")
            return Verdict(ExitCode.PEER_FAILED, f"{replica}: {failure.get('reason')}: {failure.get('message')}")
        return None


class ChiefReturn(Watcher):
    """Waits for a chief that was gone; its verdict is that it stays away."""

    def __init__(self, address: str, within_s: float = CHIEF_RETURN_S, every_s: float = POLL_S) -> None:
        super().__init__("chief", every_s)
        self._address, self._within_s = address, within_s
        self._until = time.monotonic() + within_s

    def look(self) -> Verdict | None:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            if time.monotonic() < self._until:
                return None
            return Verdict(ExitCode.CHIEF_GONE, f"the chief ({self._address}) was gone and did not come back within {self._within_s:.0f} s")
        self.stop()
        return None


def publish(remote: Remote, gang: Gang, exit_code: int, message: str, pause: Callable[[float], bool], within_s: float = PUBLISH_S) -> int:
    """Tells the gang how this replica ended, and gives the exit code that the container then ends with.

    The chief's end is the generation's result, once and for all; a PS or worker tells only what would happen again (final codes).
    ``pause(seconds)`` waits and says whether to give up (a TERM came).
    """
    if gang.role != CHIEF and not (is_final(exit_code) and exit_code != ExitCode.SUPERSEDED):
        return exit_code
    if exit_code == ExitCode.SUPERSEDED:
        return exit_code
    until, wait = time.monotonic() + within_s, 0.2
    while True:
        try:
            return _publish_once(remote, gang, exit_code, message)
        except Exception as error:  # S3 away: try again within the bound
            if time.monotonic() + wait > until or pause(wait):
                raise PublishError(f"S3 did not take the end of {gang.replica}: {error}") from error
            wait = min(wait * 2, 5.0)


class PublishError(Exception):
    """Raised when S3 did not take a replica's end within the bound."""


def chief_values(folder: Path) -> dict[str, Any] | None:
    """What the chief's child left as its result; None when there is none or it cannot be read."""
    try:
        found = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _publish_once(remote: Remote, gang: Gang, exit_code: int, message: str) -> int:
    from trainer.errors import ConflictError
    from trainer.storage import markers

    bucket, run = remote.bucket(), remote.place.run
    told = {"exit_code": exit_code, "reason": describe(exit_code), "message": message, "ended": markers.now()}
    if gang.role != CHIEF:
        bucket.put_json(keys.replica_failure(run, gang.generation, gang.replica), told)
        return exit_code
    holder = bucket.get_json(keys.generation(run))
    if holder is None or holder.get("generation") != gang.generation:
        return ExitCode.SUPERSEDED
    values = (chief_values(Path()) or {}) if exit_code == ExitCode.OK else {}
    key = keys.generation_result(run, gang.generation)
    try:
        bucket.put_json(key, {"checkpoint_step": None, **values, "version": 1, **told}, if_absent=True)
        return exit_code
    except ConflictError:
        # Ours, by a try whose answer was lost, or of an earlier life of this chief: what is there holds.
        there = bucket.get_json(key)
        return int(there["exit_code"]) if there else exit_code
