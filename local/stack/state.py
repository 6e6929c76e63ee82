"""The state folder (`var/`): what lies where, the lock of its one starter, and state.json, which the command and the tests read.

Everything in it belongs to the user alone (0700, secrets 0600). It can be deleted when the platform is down; nothing is kept elsewhere.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.stack.events import StackError
from local.stack.processes import Identity

CHECKOUT = Path(__file__).resolve().parents[2]


def write_private(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one step; readable by the user alone. OSError (a full disk) leaves the old file as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class State:
    """Paths of one state folder."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> State:
        """Makes the folders where they are absent. Raises StackError naming the folder when that is impossible."""
        state = cls(root.absolute())
        try:
            for path in (state.root, state.run, state.logs, state.kube, state.s3, state.airflow, state.kubelet):
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o700)
        except OSError as error:
            raise StackError(
                f"cannot make the state folder {state.root}: {error.strerror}; choose another by --state DIR or TRAINYARD_STATE"
            ) from error
        return state

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def kube(self) -> Path:
        return self.root / "kube"

    @property
    def s3(self) -> Path:
        return self.root / "s3"

    @property
    def airflow(self) -> Path:
        return self.root / "airflow"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    @property
    def file(self) -> Path:
        return self.root / "state.json"

    def read(self) -> dict[str, Any]:
        """state.json; {} where the platform was never up here."""
        try:
            value = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StackError(f"{self.file} is not JSON ({error}): delete it, then run `trainyard down`") from error
        return value if isinstance(value, dict) else {}

    def write(self, value: dict[str, Any]) -> None:
        write_private(self.file, json.dumps(value, indent=2) + "\n")

    def starter_pid(self) -> int | None:
        """Who holds, or last held, the starter lock."""
        try:
            return int(json.loads((self.run / "starter.json").read_text(encoding="utf-8"))["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def starter(self) -> Identity | None:
        """The living starter of this folder, if there is one."""
        try:
            value = json.loads((self.run / "starter.json").read_text(encoding="utf-8"))
            identity = Identity(int(value["pid"]), int(value["started"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return identity if identity.alive() else None


class StarterLock:
    """Held by the starter for its whole life; the kernel lets go of it however the starter dies."""

    def __init__(self, state: State) -> None:
        self._path = state.run / "starter.lock"
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """False when another starter has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
