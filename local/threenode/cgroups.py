"""The nodes' cgroups: one below the root for each node, in which its kubelet makes those of the pods. Version 1 and 2 of the hierarchy."""

from __future__ import annotations

import os
import time
from pathlib import Path

from local.stack.events import StackError
from local.threenode.plan import Node

HIERARCHY = Path("/sys/fs/cgroup")
GONE_WITHIN_S = 10.0
WANTED = ("cpu", "cpuset", "memory", "hugetlb", "pids")
"""The controllers that a kubelet uses, where there are."""


def roots(hierarchy: Path = HIERARCHY) -> list[Path]:
    """Where a cgroup is to be made: the one hierarchy of version 2, or each controller of version 1 (cpu -> cpu,cpuacct is a link)."""
    if (hierarchy / "cgroup.controllers").exists():
        return [hierarchy]
    return sorted(one for one in hierarchy.iterdir() if one.is_dir() and not one.is_symlink() and (one / "cgroup.procs").exists())


def make(node: Node, hierarchy: Path = HIERARCHY) -> None:
    """Raises StackError."""
    try:
        _enable(hierarchy)
        for root in roots(hierarchy):
            folder = root / node.cgroup
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty at first, and then nothing can run in it
                if (folder / name).exists() and (root / "tasks").exists():
                    (folder / name).write_text((root / name).read_text(encoding="ascii"), encoding="ascii")
    except OSError as error:
        raise StackError(f"cannot make the cgroup {error.filename}: {error.strerror}") from error


def _enable(hierarchy: Path) -> None:
    """Version 2: what the root has is handed down, since a kubelet refuses a cgroup that lacks one of its controllers. An init system has
    usually done so."""
    control = hierarchy / "cgroup.subtree_control"
    if not control.exists():
        return
    there = (hierarchy / "cgroup.controllers").read_text(encoding="ascii").split()
    enabled = control.read_text(encoding="ascii").split()
    for name in WANTED:
        if name in there and name not in enabled:
            control.write_text(f"+{name}", encoding="ascii")


def remove(node: Node, hierarchy: Path = HIERARCHY) -> int:
    """Removes the node's cgroups, whose processes have ended; how many there were. Raises StackError naming one that stays."""
    count = 0
    deadline = time.monotonic() + GONE_WITHIN_S
    for root in roots(hierarchy):
        for folder, _, _ in os.walk(root / node.cgroup, topdown=False):
            count += 1
            while True:
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:  # EBUSY: its last process is just ending
                    if time.monotonic() > deadline:
                        raise StackError(f"the cgroup {folder} does not go ({error.strerror}): see its cgroup.procs") from error
                    time.sleep(0.05)
    return count
