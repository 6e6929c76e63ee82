"""The parent of one container's processes: it gives them their streams, passes signals, and outlives every one of them.

A shim is forked by the runtime (runtime.py) and never runs an interpreter of its own, so 200 of them cost little memory. It is the
*subreaper* of the container: a process that loses its parent becomes the shim's child, so nothing the container started can get away.
When its container's first process ends, it kills the rest, as the kernel does with a PID namespace. When the runtime or the kubelet
ends, in whatever way, the kernel sends it TERM (PR_SET_PDEATHSIG), and it ends the container.

Not here: any decision about pods. Standard library only.
Sources: prctl(2); log lines as in kubernetes/design-proposals-archive "CRI: Dockershim/log format".
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from local.kubelet import proctree
from local.kubelet.logformat import LineWriter

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
TERMINATE, KILL = signal.SIGUSR1, signal.SIGUSR2
"""What the runtime sends to a shim: TERM to the container's process group; KILL to everything the container started."""
RUNTIME_END_GRACE_S = 2.0
"""How long a container has between TERM and KILL when the runtime ends under it."""
OOM_SCORE_ADJ = "500"
_PIPE_READ = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int | bytes) -> None:
    """prctl(2) with one argument. Raises OSError."""
    if _libc.prctl(option, ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(parent: int, with_signal: int) -> None:
    """Have the kernel send `with_signal` when the parent ends; end at once where it is gone already."""
    prctl(PR_SET_PDEATHSIG, with_signal)
    if os.getppid() != parent:
        os._exit(0)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a small document so that a reader sees all of it or none."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(document), encoding="utf-8")
    temporary.rename(path)


def utc_seconds(at: float) -> str:
    """A time as Kubernetes writes it in a status: whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def find_executable(command: str, path: str, directory: str) -> str:
    """Where `command` is, looked up in the container's own PATH. Raises FileNotFoundError or PermissionError in a runtime's words."""
    names = [os.path.join(directory, command)] if "/" in command else [os.path.join(part, command) for part in path.split(":") if part]
    present = [name for name in names if os.path.isfile(name)]
    for name in present:
        if os.access(name, os.X_OK):
            return name
    if present:
        raise PermissionError(f'exec: "{command}": permission denied')
    where = "no such file or directory" if "/" in command else "executable file not found in $PATH"
    raise FileNotFoundError(f'exec: "{command}": {where}')


def _exec_container(request: dict[str, Any], shim: int, out: int, err: int, gate: int, failure: int) -> NoReturn:
    """In the container's first process: become the command. Writes the reason to `failure` where that is not possible."""
    try:
        os.setsid()
        die_with_parent(shim, signal.SIGKILL)
        # Python ignores SIGPIPE and SIGXFSZ, and whoever started the kubelet may ignore more: an ignored signal survives execve.
        for number in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        os.umask(0o022)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            # Where the machine itself runs out of memory, a container goes before what holds the cluster together.
            score.write(OOM_SCORE_ADJ)
        os.chdir(request["directory"])
        environment: dict[str, str] = request["environment"]
        executable = find_executable(request["command"][0], environment.get("PATH", ""), request["directory"])
        # Held until the shim has written down who this is: a container that runs is a container on record.
        os.read(gate, 1)
        os.execve(executable, request["command"], environment)
    except BaseException as problem:
        text = (
            str(problem)
            if not isinstance(problem, OSError) or problem.errno is None
            else f'exec: "{request["command"][0]}": {os.strerror(problem.errno)}'
        )
        with contextlib.suppress(OSError):
            os.write(failure, text.encode("utf-8", "replace")[:4096])
    os._exit(128)


class Shim:
    """One container's life, from fork to exit record."""

    def __init__(self, request: dict[str, Any], events: socket.socket) -> None:
        self.request = request
        self.events = events
        self.folder = Path(request["folder"])
        self.runtime_ended = False
        self.kill_at: float | None = None
        self.code: int | None = None
        self.pid = 0

    def run(self) -> None:
        """Start the container and stay until nothing of it is left."""
        wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, TERMINATE, KILL):
            signal.signal(number, lambda *_: None)  # the number arrives through the wake-up pipe
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        out, out_in = os.pipe()
        err, err_in = os.pipe()
        gate, gate_in = os.pipe()
        failure, failure_in = os.pipe()
        me = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _exec_container(self.request, me, out_in, err_in, gate, failure_in)
        for fd in (out_in, err_in, gate, failure_in):
            os.close(fd)
        started = time.time()
        mine, child = proctree.read(me), proctree.read(self.pid)
        write_json(
            self.folder / "state.json",
            {
                "shim": {"pid": me, "started": mine.started if mine else 0},
                "process": {"pid": self.pid, "started": child.started if child else 0},
                "startedAt": utc_seconds(started),
            },
        )
        with contextlib.suppress(OSError):
            os.write(gate_in, b"1")
        os.close(gate_in)
        problem = os.read(failure, 4096).decode("utf-8", "replace")
        os.close(failure)
        if problem:
            os.waitpid(self.pid, 0)
            record = {
                "exitCode": 128,
                "reason": "StartError",
                "message": problem,
                "startedAt": utc_seconds(started),
                "finishedAt": utc_seconds(time.time()),
            }
        else:
            self._report({"event": "started", "pid": self.pid, "startedAt": utc_seconds(started)})
            self._follow(wake, [(out, "stdout"), (err, "stderr")])
            record = {"exitCode": self.code, "startedAt": utc_seconds(started), "finishedAt": utc_seconds(time.time())}
            if self.runtime_ended:
                record["runtimeEnded"] = True
        with contextlib.suppress(OSError):  # no space left: the kubelet is told all the same
            write_json(self.folder / "exit.json", record)
        self._report({"event": "exited", **record})

    def _report(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the kubelet is gone: the record on disk is what its successor reads
            self.events.send(json.dumps({"id": self.request["id"], **event}).encode())

    def _follow(self, wake: int, pipes: list[tuple[int, str]]) -> None:
        """Copy the streams and obey signals until the first process and all it started are gone."""
        with LineWriter(Path(self.request["log"])) as log:
            streams = dict(pipes)
            poll = select.poll()
            for fd in [wake, *streams]:
                poll.register(fd, select.POLLIN)
            ended_streams: set[int] = set()
            while self.code is None:
                timeout = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic()) * 1000
                for fd, _ in poll.poll(timeout):
                    if fd == wake:
                        self._obey(os.read(wake, 4096))
                    elif not self._copy(fd, streams[fd], log):
                        poll.unregister(fd)  # closed by every process of the container, which may well go on without it
                        ended_streams.add(fd)
                if self.kill_at is not None and time.monotonic() >= self.kill_at:
                    self.kill_at = None
                    self._kill_all()
            self._end_stragglers()
            for fd, name in pipes:
                if fd not in ended_streams:
                    os.set_blocking(fd, False)
                    while self._copy(fd, name, log):
                        pass

    @staticmethod
    def _copy(fd: int, stream: str, log: LineWriter) -> bool:
        """Copy what is there. False where the stream has ended, or where nothing more is in it now."""
        try:
            data = os.read(fd, _PIPE_READ)
        except BlockingIOError:
            return False
        if data:
            log.write(stream, data)
        return bool(data)

    def _obey(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                self._reap()
            elif number == KILL:
                self._kill_all()
            elif number in (TERMINATE, signal.SIGTERM):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGTERM)
                if number == signal.SIGTERM and not self.runtime_ended:
                    self.runtime_ended = True
                    self.kill_at = time.monotonic() + RUNTIME_END_GRACE_S

    def _reap(self) -> None:
        """Collect every child that ended: the container's first process and the orphans it left to this subreaper."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self.code = 128 - code if code < 0 else code

    def _kill_all(self) -> None:
        for pid in proctree.descendants([os.getpid()], proctree.table()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _end_stragglers(self) -> None:
        """Kill what the first process left behind; again, since a process may fork while it is being killed."""
        while True:
            self._kill_all()
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
            except ChildProcessError:
                return


def main(request: dict[str, Any], events: socket.socket, runtime: int) -> NoReturn:
    """The whole life of a forked shim; never returns into the runtime's code."""
    try:
        os.setsid()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_NAME, b"pod-shim")
        die_with_parent(runtime, signal.SIGTERM)
        Shim(request, events).run()
    except BaseException as problem:
        # A shim that fails is reported by the runtime, which sees its status; the words go to the kubelet's own log.
        print(f"shim of {request.get('id')}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


__all__ = ["KILL", "RUNTIME_END_GRACE_S", "TERMINATE", "die_with_parent", "find_executable", "main", "prctl", "utc_seconds", "write_json"]
