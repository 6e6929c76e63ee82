"""The process that forks a shim for each container: small and single-threaded, so a fork is cheap and safe.

It exists because the kubelet has threads: PR_SET_PDEATHSIG is bound to the *thread* that forked, and a fork beside threads may dead-lock.
Started by processes.py as `python -S -m local.kubelet.runtime REQUESTS_FD EVENTS_FD`. Requests are JSON lines on a stream socket;
events are JSON datagrams (SEQPACKET), which the shims send too.

It ends with the kubelet (its socket closes, and the kernel sends TERM), and takes the shims with it. It is a subreaper itself: where
a shim is killed, the container's left-over processes become its children, and it kills them.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from local.kubelet import proctree, shim

SHIMS_END_WITHIN_S = shim.RUNTIME_END_GRACE_S + 3.0
"""How long the shims have to end their containers before they are killed themselves."""


class Runtime:
    """The table of shims and the loop that serves it."""

    def __init__(self, requests: socket.socket, events: socket.socket) -> None:
        self.requests = requests
        self.events = events
        self.shims: dict[int, str] = {}
        self.unread = b""
        self.wake, self.wake_in = os.pipe()

    def serve(self) -> None:
        """Serve until the kubelet is gone or TERM arrives; then end every container."""
        os.set_blocking(self.wake, False)
        os.set_blocking(self.wake_in, False)
        signal.set_wakeup_fd(self.wake_in, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.requests, select.POLLIN)
        going_on = True
        while going_on:
            for fd, _ in poll.poll():
                if fd == self.wake:
                    numbers = os.read(self.wake, 4096)
                    self.reap()
                    going_on = going_on and signal.SIGTERM not in numbers
                else:
                    going_on = self.take_requests() and going_on
        self.end()

    def take_requests(self) -> bool:
        """Do what the kubelet asks. False where it is gone."""
        try:
            data = self.requests.recv(1 << 20)
        except ConnectionError:
            return False
        if not data:
            return False
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self.do(json.loads(line))
        return True

    def do(self, request: dict[str, Any]) -> None:
        """One request: {"do": "start", …}, {"do": "terminate", "id"} or {"do": "kill", "id"}."""
        if request["do"] == "start":
            self.start(request)
            return
        number = shim.TERMINATE if request["do"] == "terminate" else shim.KILL
        for pid, name in self.shims.items():
            if name == request["id"]:
                # Not yet reaped, so the pid is still the shim's.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def start(self, request: dict[str, Any]) -> None:
        """Fork the shim of one container."""
        me = os.getpid()
        # Until its own handlers are in place, a signal would reach the runtime's handler in the child, and be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM, shim.TERMINATE, shim.KILL])
        try:
            pid = os.fork()
        except OSError as problem:
            self.report({"id": request["id"], "event": "lost", "message": f"fork: {problem.strerror}"})
            return
        else:
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for fd in (self.wake, self.wake_in):
                    os.close(fd)
                self.requests.close()
                shim.main(request, self.events, me)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD, signal.SIGTERM, shim.TERMINATE, shim.KILL])
        self.shims[pid] = request["id"]

    def reap(self) -> None:
        """Collect shims that ended; one that did not end by itself leaves its container to be killed here."""
        lost = []
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                name = self.shims.pop(pid, None)
                if name is not None and status != 0:
                    lost.append((name, os.waitstatus_to_exitcode(status)))
        if lost:
            self.kill_orphans()
        for name, code in lost:
            self.report({"id": name, "event": "lost", "message": f"the container's shim ended with {code}"})

    def kill_orphans(self) -> None:
        """Kill every child of this process that is no shim, and what is below it."""
        processes = proctree.table()
        orphans = [process.pid for process in processes.values() if process.parent == os.getpid() and process.pid not in self.shims]
        for pid in [*orphans, *proctree.descendants(orphans, processes)]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def report(self, event: dict[str, Any]) -> None:
        """Tell the kubelet, if it is still there."""
        with contextlib.suppress(OSError):
            self.events.send(json.dumps(event).encode())

    def end(self) -> None:
        """End every container: TERM to the shims, which kill what does not obey, then KILL to all that is left."""
        for pid in self.shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + SHIMS_END_WITHIN_S
        while self.shims and time.monotonic() < deadline:
            select.select([self.wake], [], [], 0.05)
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)
            self.reap()
        for pid in proctree.descendants([os.getpid()], proctree.table()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Entry point: REQUESTS_FD EVENTS_FD KUBELET_PID."""
    requests_fd, events_fd, kubelet = (int(argument) for argument in arguments)
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 1)
    shim.prctl(shim.PR_SET_NAME, b"pod-runtime")
    for fd in (requests_fd, events_fd):
        os.set_inheritable(fd, False)
    runtime = Runtime(socket.socket(fileno=requests_fd), socket.socket(fileno=events_fd))
    shim.die_with_parent(kubelet, signal.SIGTERM)
    # What is alive now is shared with every shim for good: keep the collector from writing to those pages.
    gc.collect()
    gc.freeze()
    runtime.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
