"""A run's generations in S3: which one is current, and how each ended. They are what makes adoption safe.

``generation.json`` moves by compare-and-swap and by the operator only; a chief writes checkpoints and results only while it names its
own generation. A result stays for good, so an Airflow that slept through everything still learns what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard.contract import keys
from trainyard.contract.exit_codes import ExitCode, describe
from trainyard.errors import ConflictError, UnavailableError
from trainyard.store import Store


@dataclass(frozen=True)
class Result:
    """How a generation ended, as its chief's supervisor wrote it."""

    exit_code: int
    reason: str
    message: str
    checkpoint_step: int | None
    loss: float | None

    @property
    def good(self) -> bool:
        return self.exit_code == ExitCode.OK

    @classmethod
    def read(cls, document: Any, where: str) -> Result:
        """Check the document's shape.

        Raises:
            UnavailableError: it is something else; whoever wrote it may write it again.
        """
        try:
            code = int(document["exit_code"])
            step, loss = document.get("checkpoint_step"), document.get("loss")
            return cls(
                exit_code=code,
                reason=str(document.get("reason") or describe(code)),
                message=str(document.get("message") or ""),
                checkpoint_step=None if step is None else int(step),
                loss=None if loss is None else float(loss),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnavailableError(f"{where} is no result of a generation: {error!r}") from error


@dataclass(frozen=True)
class Current:
    """The generation that holds the run."""

    number: int
    spec_sha256: str


class Generations:
    """The generations of one run."""

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self._run = run

    def current(self) -> Current | None:
        """The current one; None before the first."""
        found = self._read()
        return found[0] if found else None

    def _read(self) -> tuple[Current, str] | None:
        key = keys.generation(self._run)
        found = self._store.get_json_with_etag(key)
        if found is None:
            return None
        document, etag = found
        try:
            return Current(int(document["generation"]), str(document["spec_sha256"])), etag
        except (KeyError, TypeError, ValueError) as error:
            raise UnavailableError(f"s3://{self._store.bucket}/{key} names no generation: {error!r}") from error

    def take(self, spec_sha256: str) -> int:
        """Begin the next generation and return its number: from now on an older chief writes nothing more.

        Raises:
            ConflictError: somebody else began one at the same time.
        """
        found = self._read()
        number = found[0].number + 1 if found else 1
        document = {"generation": number, "spec_sha256": spec_sha256}
        try:
            if found:
                self._store.put_json(keys.generation(self._run), document, if_match=found[1])
            else:
                self._store.put_json(keys.generation(self._run), document, if_none_match=True)
        except UnavailableError:
            # The answer was lost, perhaps not the write. Nobody else takes generations of our run while our task runs, so the
            # number that stands there now is ours.
            again = self.current()
            if again is None or again.number != number:
                raise
        return number

    def result(self, number: int) -> Result | None:
        """How generation ``number`` ended; None while it has not."""
        key = keys.generation_result(self._run, number)
        document = self._store.get_json(key)
        return None if document is None else Result.read(document, f"s3://{self._store.bucket}/{key}")

    def failures(self, number: int) -> dict[str, str]:
        """What replicas that failed for good have left: replica → reason and message."""
        folder = keys.replica_failure(self._run, number, "").removesuffix(".json")
        found = {}
        for item in self._store.list(folder):
            document = self._store.get_json(item.key) or {}
            replica = item.key.removeprefix(folder).removesuffix(".json")
            found[replica] = f"{document.get('reason', 'failed')}: {document.get('message', '')}".rstrip(": ")
        return found

    def is_reported(self, number: int) -> bool:
        """Whether the bad end of a generation has been told to Airflow already: the next try then begins a new one."""
        return self._store.exists(keys.generation_reported(self._run, number))

    def report(self, number: int) -> None:
        """Note that a try of the task has failed with this generation's result."""
        try:
            self._store.put_json(keys.generation_reported(self._run, number), {}, if_none_match=True)
        except ConflictError:
            pass  # reported before: as good
