"""`python -m local.kubelet`: the embedded cluster's kubelet, one process in the foreground until TERM or INT.

Everything it runs ends with it. One root folder belongs to one kubelet: a second one is refused.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from kubernetes.config import ConfigException

from local.kubelet import leftovers, server
from local.kubelet.api import Api
from local.kubelet.events import EventRecorder
from local.kubelet.images import Images, ImagesFileError
from local.kubelet.limits import MemoryLimits
from local.kubelet.manager import PodManager
from local.kubelet.node import ADDRESS, Capacity, Node
from local.kubelet.processes import CHECKOUT, Processes
from local.kubelet.start import Starter
from local.kubelet.watch import PodWatch
from local.kubelet.writer import StatusWriter

log = logging.getLogger("local.kubelet")

VERSION = "v1.34.4"
"""The Kubernetes release whose kubelet this stands for: that of local/kube/go.mod."""
RESTART_S = 1.0
BAD_USE, RUNTIME_LOST = 2, 3
"""Exit codes: wrong arguments or files; the runtime process ended under the kubelet."""


class UsageError(Exception):
    """Something the caller gave is wrong; the message is one line with the way out."""


class Reporter:
    """Statuses and events of pods, as pod.py hands them out."""

    def __init__(self, writer: StatusWriter, events: EventRecorder) -> None:
        self.status, self.delete, self.event = writer.status, writer.delete, events.event


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m local.kubelet", description="A kubelet whose containers are processes (docs/embedded-kubelet.md)."
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, help="credentials of system:node:<node> in group system:nodes")
    parser.add_argument("--root", type=Path, required=True, help="folder for pods, logs and records; belongs to one kubelet")
    parser.add_argument("--images", type=Path, default=CHECKOUT / "local" / "images.yaml", help="which image references run, and as what")
    parser.add_argument("--node", default="local", help="the Node's name")
    parser.add_argument("--port", type=int, default=10250, help="of the kubelet's own HTTPS server, on loopback")
    parser.add_argument(
        "--client-ca", type=Path, help="authority whose client certificates may read logs (the API server's --kubelet-client-certificate)"
    )
    parser.add_argument("--cpu", type=int, help="CPUs the node offers; default 4 a core")
    parser.add_argument("--memory", type=int, help="bytes the node offers; default the machine's memory")
    parser.add_argument("--pods", type=int, default=200, help="pods the node takes")
    return parser.parse_args(arguments)


def lock(root: Path) -> IO[str]:
    """Take the root folder for this process. Raises UsageError where another kubelet has it."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (root / "lock").open("a+", encoding="ascii")
    except OSError as problem:
        raise UsageError(f"--root {root}: {problem.strerror}: give a folder this user can write") from problem
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        file.seek(0)
        raise UsageError(
            f"--root {root}: the kubelet with pid {file.read().strip() or '?'} uses it: stop that one, or give another folder"
        ) from problem
    file.seek(0)
    file.truncate()
    file.write(str(os.getpid()))
    file.flush()
    return file


def keep_doing(target: Callable[[threading.Event], None], name: str, stop: threading.Event) -> None:
    """Have a thread run `target` until `stop` is set; an error nobody foresaw is logged, and it begins again."""

    def run() -> None:
        while not stop.is_set():
            try:
                target(stop)
            except Exception:
                log.exception("%s failed; it begins again", name)
                stop.wait(RESTART_S)

    threading.Thread(target=run, name=name, daemon=True).start()


def serve(arguments: argparse.Namespace) -> int:
    """Run until TERM, INT or the loss of the runtime; the exit code. Raises UsageError."""
    root: Path = arguments.root.resolve()
    held = lock(root)
    try:
        images = Images(arguments.images, CHECKOUT)
    except ImagesFileError as problem:
        raise UsageError(str(problem)) from problem
    try:
        api = Api(arguments.kubeconfig)
    except (ConfigException, OSError, ValueError) as problem:
        raise UsageError(
            f"--kubeconfig {arguments.kubeconfig}: {problem} Give the file of the node's identity (the stack writes it)"
        ) from problem
    pods = root / "pods"
    pods.mkdir(mode=0o700, exist_ok=True)
    leftovers.reap(pods)

    stop, lost = threading.Event(), threading.Event()
    wake_read, wake_write = socket.socketpair()

    def end(*_: object) -> None:
        stop.set()
        with contextlib.suppress(OSError):
            wake_write.send(b"1")

    def runtime_lost() -> None:
        lost.set()
        end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    # From the main thread, which lives as long as the process: the runtime's death signal is bound to the thread that started it.
    processes = Processes(runtime_lost)
    capacity = Capacity.of_this_machine(arguments.cpu, arguments.memory)
    capacity = Capacity(capacity.cpu, capacity.memory, arguments.pods)
    writer, events = StatusWriter(api), EventRecorder(api, arguments.node)
    manager: PodManager
    starter = Starter(api, processes, images, capacity, lambda uid: manager.changed(uid))
    manager = PodManager(pods, starter, Reporter(writer, events))
    node = Node(api, arguments.node, arguments.port, capacity, root, VERSION, manager.tell_all_again)
    certificate = root / "tls.pem"
    server.make_certificate(certificate, arguments.node)
    try:
        http = server.start(server.KubeletServer(manager), arguments.port, certificate, arguments.client_ca)
    except (OSError, SystemExit) as problem:
        processes.close()
        raise UsageError(f"--port {arguments.port}: cannot listen on {ADDRESS}: the port is taken: give another") from problem
    writer.start()
    events.start()
    manager.start()

    watch = PodWatch(api, arguments.node, manager.listed, manager.told)
    keep_doing(node.keep, "node", stop)
    keep_doing(watch.run, "watch", stop)
    keep_doing(MemoryLimits(processes.running, processes.kill).watch, "limits", stop)
    log.info(
        "kubelet of node %s: pid %d, runtime pid %d, https://%s:%d",
        arguments.node,
        os.getpid(),
        processes.runtime_pid,
        ADDRESS,
        arguments.port,
    )
    while not stop.is_set():
        wake_read.recv(1)
    log.info("ending: the containers end with this kubelet")
    manager.stop()
    http.should_exit = True
    processes.close()
    writer.stop(timeout=2.0)
    held.close()
    if lost.is_set():
        log.error("the runtime process ended, and every container with it; start the kubelet again: it reports their pods failed")
        return RUNTIME_LOST
    return 0


def main() -> int:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        return serve(parse(sys.argv[1:]))
    except UsageError as problem:
        print(f"kubelet: {problem}", file=sys.stderr)
        return BAD_USE


if __name__ == "__main__":
    sys.exit(main())
