"""One container of a pod: its state, its files, and the translation of an exit record into what the API shows.

Not here: when it is started or stopped (pod.py), how it is run (processes.py).
"""

import json
from pathlib import Path

from local.kubelet import logs
from local.kubelet.api import Json
from local.kubelet.processes import Process
from local.kubelet.status import ContainerState

UNKNOWN = "ContainerStatusUnknown"
KUBELET_ENDED = "the kubelet ended while the container was running, and its processes with it"
MAX_MESSAGE, MAX_MESSAGE_FROM_LOG, MAX_LINES_FROM_LOG = 4096, 2048, 80
"""Bytes and lines of a termination message, as a kubelet has them."""
_OUT_OF_MEMORY, _KILLED = "OOMKilled", 137


class Container:
    """A container and its folder: log, termination message, the runtime's records, and a private working directory."""

    def __init__(self, spec: Json, init: bool, folder: Path, waiting: str) -> None:
        self.spec = spec
        self.folder = folder
        self.process: Process | None = None
        self.failures = 0
        self.retry_at = 0.0
        """Monotonic seconds before which no start is tried again."""
        self.shown = ContainerState(spec["name"], spec["image"], init, {"waiting": {"reason": waiting}})

    @property
    def name(self) -> str:
        """The container's name."""
        return self.shown.name

    @property
    def log(self) -> Path:
        """The log file, in the CRI's format."""
        return self.folder / "log"

    @property
    def termination_log(self) -> Path:
        """What terminationMessagePath stands for."""
        return self.folder / "termination-log"

    @property
    def work(self) -> Path:
        """The container's private folder: HOME, and where it starts unless it says otherwise."""
        return self.folder / "work"

    @property
    def active(self) -> bool:
        """Whether it was given to the runtime and has not ended."""
        return self.process is not None and self.process.ended is None

    @property
    def started(self) -> bool:
        """Whether it was ever given to the runtime, by this kubelet or the one before."""
        return self.process is not None or "waiting" not in self.shown.state

    def wait(self, reason: str, message: str = "") -> None:
        """Show why it does not run yet."""
        self.shown.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def collect(self) -> bool:
        """Take over what the runtime has reported. True where the state has changed."""
        if self.process is None or "terminated" in self.shown.state:
            return False
        if self.process.ended is not None:
            self._terminated(self.process.ended, self.process.out_of_memory)
            return True
        if self.process.pid is not None and not self.shown.running:
            self.shown.container_id = f"processes://{self.process.pid}"
            self.shown.state = {"running": {"startedAt": self.process.started_at}}
            return True
        return False

    def recover(self) -> bool:
        """After a restart of the kubelet: read the records of its former life. True where the container had been started."""
        started, ended = _read(self.folder / "state.json"), _read(self.folder / "exit.json")
        if started is None and ended is None:
            return False
        if ended is None:
            ended = {"startedAt": (started or {}).get("startedAt"), "runtimeEnded": True}
        if started:
            self.shown.container_id = f"processes://{started['process']['pid']}"
        self._terminated(ended, out_of_memory=False)
        return True

    def recover_without_record(self) -> None:
        """After a restart of the kubelet: the API shows it started, and no record of it is left."""
        self._terminated({"runtimeEnded": True}, out_of_memory=False)

    def _terminated(self, record: Json, out_of_memory: bool) -> None:
        if record.get("runtimeEnded"):
            # What the container did about a TERM that nobody meant for it says nothing about its work.
            record = {**record, "exitCode": _KILLED, "reason": UNKNOWN, "message": KUBELET_ENDED}
        code = int(record["exitCode"])
        reason = record.get("reason") or ("Completed" if code == 0 else "Error")
        if out_of_memory:
            code, reason = _KILLED, _OUT_OF_MEMORY
        message = record.get("message") or self._message(code)
        terminated = {"exitCode": code, "reason": reason, "message": message, "containerID": self.shown.container_id}
        terminated |= {key: record[key] for key in ("startedAt", "finishedAt") if record.get(key)}
        self.shown.state = {"terminated": {key: value for key, value in terminated.items() if value not in ("", None)}}

    def _message(self, code: int) -> str:
        """The termination message: the file the container wrote, or the end of its log where it asked for that and failed."""
        try:
            with self.termination_log.open("rb") as file:
                message = file.read(MAX_MESSAGE)
        except OSError:
            message = b""
        if not message and code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = logs.tail_text(self.log, MAX_LINES_FROM_LOG, MAX_MESSAGE_FROM_LOG)
        return message.decode("utf-8", "replace")


def _read(path: Path) -> Json | None:
    try:
        document: Json = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document
