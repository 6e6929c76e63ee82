"""The nodes' cgroups: one below the root for each node, in which its kubelet makes those of the pods. Version 1 and 2 of the hierarchy."""

from __future__ import annotations

import os
import time
from pathlib import Path

from local.stack.events import StackError
from local.threenode.plan import Node

HIERARCHY = Path("/sys/fs/cgroup")
GONE_WITHIN_S = 10.0


def roots(hierarchy: Path = HIERARCHY) -> list[Path]:
    """Where a cgroup is to be made: the one hierarchy of version 2, or each controller of version 1 (cpu -> cpu,cpuacct is a link)."""
    if (hierarchy / "cgroup.controllers").exists():
        return [hierarchy]
    return sorted(one for one in hierarchy.iterdir() if one.is_dir() and not one.is_symlink() and (one / "cgroup.procs").exists())


def make(node: Node, hierarchy: Path = HIERARCHY) -> None:
    """Raises StackError."""
    try:
        for root in roots(hierarchy):
            folder = root / node.cgroup
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty at first, and then nothing can run in it
                if (folder / name).exists() and (root / "tasks").exists():
                    (folder / name).write_text((root / name).read_text(encoding="ascii"), encoding="ascii")
    except OSError as error:
        raise StackError(f"cannot make the cgroup {error.filename}: {error.strerror}") from error


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
