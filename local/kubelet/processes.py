"""The kubelet's side of the runtime: start a container, signal it, hear how it ended.

Not here: forking and reaping (runtime.py, shim.py), and any decision about pods (pod.py).
"""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class Process:
    """One container as the runtime has it. Written by the thread that reads events, under the owner's notice."""

    id: str
    folder: Path
    changed: Callable[[], None]
    pid: int | None = None
    """The first process; None until it runs."""
    started_at: str | None = None
    ended: dict[str, Any] | None = None
    """The exit record: exitCode, reason, message, startedAt, finishedAt (those that apply); None while it runs."""
    memory_limit: int | None = None
    """Bytes; read by limits.py."""
    group: str = ""
    """The pod's uid: what a limit on the whole pod is summed over."""
    group_memory_limit: int | None = None
    out_of_memory: bool = field(default=False)


class RuntimeLost(Exception):
    """The runtime process ended: every container is gone with it."""


class Processes:
    """Every container this kubelet runs."""

    def __init__(self, lost: Callable[[], None]) -> None:
        """`lost` is called once when the runtime process ends under us."""
        self._lost = lost
        self._all: dict[str, Process] = {}
        self._lock = threading.Lock()
        self._closing = False
        requests, theirs_requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        events, theirs_events = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests, self._events = requests, events
        fds = (theirs_requests.fileno(), theirs_events.fileno())
        # -S: no site-packages, it needs none, and 200 shims are copies of this process.
        self._runtime = subprocess.Popen(
            [sys.executable, "-S", "-m", "local.kubelet.runtime", *map(str, fds), str(os.getpid())],
            pass_fds=fds,
            env={"PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs_requests.close()
        theirs_events.close()
        threading.Thread(target=self._read_events, name="runtime-events", daemon=True).start()

    @property
    def runtime_pid(self) -> int:
        """The runtime process; its ending ends every container."""
        return self._runtime.pid

    def start(self, process: Process, command: list[str], environment: dict[str, str], directory: Path, log_file: Path) -> None:
        """Have the runtime start a container. Its start and end are told through `process.changed`.

        Raises RuntimeLost.
        """
        with self._lock:
            self._all[process.id] = process
        self._ask(
            {
                "do": "start",
                "id": process.id,
                "folder": str(process.folder),
                "command": command,
                "environment": environment,
                "directory": str(directory),
                "log": str(log_file),
            }
        )

    def terminate(self, process: Process) -> None:
        """TERM to the container's process group."""
        self._ask({"do": "terminate", "id": process.id})

    def kill(self, process: Process) -> None:
        """KILL to everything the container started."""
        self._ask({"do": "kill", "id": process.id})

    def running(self) -> list[Process]:
        """The containers whose first process runs now."""
        with self._lock:
            return [process for process in self._all.values() if process.pid is not None and process.ended is None]

    def close(self, timeout: float = 15.0) -> None:
        """End every container, and wait until all are gone."""
        self._closing = True
        self._requests.close()
        try:
            self._runtime.wait(timeout)
        except subprocess.TimeoutExpired:
            log.error("the runtime (pid %d) did not end in %.0f s: killing it", self._runtime.pid, timeout)
            self._runtime.kill()
            self._runtime.wait()

    def _ask(self, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode() + b"\n"
        try:
            with self._lock:
                self._requests.sendall(data)
        except OSError as problem:
            raise RuntimeLost(f"the runtime process is gone ({problem})") from problem

    def _read_events(self) -> None:
        while data := self._receive():
            event = json.loads(data)
            with self._lock:
                process = self._all.get(event["id"])
            if process is None:
                continue
            kind = event.pop("event")
            del event["id"]
            if kind == "started":
                process.pid, process.started_at = event["pid"], event["startedAt"]
            else:
                if kind == "lost":
                    event = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": event["message"]}
                process.ended = event
                with self._lock:
                    self._all.pop(process.id, None)
            process.changed()
        if not self._closing:
            self._lost()

    def _receive(self) -> bytes:
        try:
            return self._events.recv(65536)
        except OSError:
            return b""
