"""A node in place of a machine: a process tree with namespaces of its own, which ends as a whole and leaves nothing.

    python -I -S machine.py SPEC.json

The first process of the tree (services.py) is process 1 of a PID namespace: when it ends, in any way, the kernel kills every process of
the node, containers and their shims included, and with the last of them go its mounts, its network interfaces and its pods' network
namespaces. So a node is powered off by one SIGKILL, and nothing has to be unmounted or deleted by whoever comes after.

What a node sees: the machine's files, but a /run, /var/lib and /var/log of its own, so that its programs use their usual paths.

The process that was started stays on the machine's side: it plugs the node's cable into the bridge, waits, and passes the end on both
ways. Standard library only. It is no container runtime: there is no image, no isolation from the machine's other files, no limit.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from local.stack.shim import PR_SET_PDEATHSIG, prctl
from local.threenode.services import Init, Service

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000  # sched.h
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 2, 4, 8, 4096, 16384, 1 << 18, 1 << 20  # linux/mount.h
LOG_LIMIT = 64 * 1024 * 1024
"""Bytes; a longer log is set aside (one generation) when its program starts."""


@dataclass(frozen=True)
class Uplink:
    """The node's cable: a pair of interfaces, `eth0` on its side."""

    bridge: str
    cable: str
    address: str
    """With its prefix length."""
    gateway: str


@dataclass(frozen=True)
class Spec:
    """All that a node is, as node.py writes it (`document`) and this program reads it."""

    hostname: str
    uplink: Uplink
    binds: list[tuple[str, str]]
    """(source, target), in this order: the target's place then shows the source."""
    tmpfs: list[str]
    sysctls: dict[str, str]
    environment: dict[str, str]
    services: list[dict[str, Any]]
    logs: str
    """Folder of `<hostname>.<service>.log`."""
    report: str
    """File with the state of the services, as JSON."""

    @classmethod
    def read(cls, path: Path) -> Spec:
        document = json.loads(path.read_text(encoding="utf-8"))
        binds = [(source, target) for source, target in document["binds"]]
        return cls(**{**document, "uplink": Uplink(**document["uplink"]), "binds": binds})


# ------------------------------------------------------------------------------------------------------------- system calls
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """unshare(2), which Python has only from 3.12 on. Raises OSError."""
    if _libc.unshare(ctypes.c_int(flags)) != 0:
        raise OSError(ctypes.get_errno(), "unshare failed")


def setns(path: str, flags: int) -> None:
    """setns(2), which Python has only from 3.12 on. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(ctypes.c_int(descriptor), ctypes.c_int(flags)) != 0:
            raise OSError(ctypes.get_errno(), "setns failed")
    finally:
        os.close(descriptor)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises OSError naming the target."""
    words = [None if one is None else os.fsencode(one) for one in (source, target, kind, data)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), target)


def ip(*words: str) -> None:
    """Raises RuntimeError with what `ip` said."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


# -------------------------------------------------------------------------------------------------------- on the machine's side
def plug(uplink: Uplink, pid: int) -> None:
    """Makes the cable into the network namespace of `pid` and plugs it into the bridge. One of a node that has just died goes first."""
    subprocess.run(["ip", "link", "del", uplink.cable], capture_output=True)
    ip("link", "add", uplink.cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", uplink.cable, "master", uplink.bridge, "up")


# ----------------------------------------------------------------------------------------------------------- on the node's side
def enter_network(spec: Spec) -> None:
    """The node's own interfaces, once the cable is there."""
    ip("link", "set", "lo", "up")
    ip("addr", "add", spec.uplink.address, "dev", "eth0")
    ip("link", "set", "eth0", "up")
    ip("route", "add", "default", "via", spec.uplink.gateway)


def enter_files(spec: Spec) -> None:
    """The node's own view of the machine's files; none of it is seen from outside."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    opened = [(os.open(source, os.O_PATH), target) for source, target in spec.binds]  # a source may lie below an earlier one's target
    for descriptor, target in opened:
        mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND | MS_REC)
        os.close(descriptor)
    for target in spec.tmpfs:
        mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    mount("none", "/", None, MS_REC | MS_SHARED)  # what a kubelet and a container runtime expect: mounts of the one reach the other
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name, value in spec.sysctls.items():
        try:
            Path("/proc/sys", name.replace(".", "/")).write_text(value, encoding="ascii")
        except OSError as error:  # not in every kernel, and flannel or kube-proxy say what they miss
            print(f"machine: {name}={value}: {error.strerror}", file=sys.stderr, flush=True)


def be_the_node(spec: Spec, plugged: int) -> int:
    """The first process of the node: everything of its own, then its services until the end."""
    logs = os.open(spec.logs, os.O_DIRECTORY | os.O_RDONLY)  # what these are in is hidden below
    reports = os.open(Path(spec.report).parent, os.O_DIRECTORY | os.O_RDONLY)
    name = Path(spec.report).name

    def log(service: str) -> int:
        file = f"{spec.hostname}.{service}.log"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=logs)
        if os.fstat(descriptor).st_size <= LOG_LIMIT:
            return descriptor
        os.close(descriptor)
        os.replace(file, f"{file}.1", src_dir_fd=logs, dst_dir_fd=logs)
        return log(service)

    def report(text: str) -> None:
        descriptor = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=reports)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f".{name}", name, src_dir_fd=reports, dst_dir_fd=reports)

    socket.sethostname(spec.hostname)
    if not os.read(plugged, 1):  # the other side has ended
        return 1
    enter_network(spec)
    os.chdir("/")
    enter_files(spec)
    return Init([Service.of(one) for one in spec.services], spec.environment, log, report).run()


def child(spec: Spec, ready: int, plugged: int) -> NoReturn:
    """Runs in the forked process and never returns from it."""
    code = 1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC)
        os.write(ready, b"1")
        code = be_the_node(spec, plugged)
    except BaseException as error:
        print(f"machine: {spec.hostname}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


def main() -> int:
    spec = Spec.read(Path(sys.argv[1]))
    ready, is_ready = os.pipe()
    plugged, is_plugged = os.pipe()
    unshare(CLONE_NEWPID)  # of the next child: it is process 1 there
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        os.close(is_plugged)
        child(spec, is_ready, plugged)
    setns("/proc/self/ns/pid", CLONE_NEWPID)  # children to come (ip) live among the machine's processes again
    os.close(is_ready)
    os.close(plugged)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    if os.read(ready, 1):
        try:
            plug(spec.uplink, pid)
            os.write(is_plugged, b"1")
        except (RuntimeError, OSError) as error:
            print(f"machine: {spec.hostname}: {error}", file=sys.stderr, flush=True)
            os.kill(pid, signal.SIGKILL)
    os.close(is_plugged)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
