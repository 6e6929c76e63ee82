"""The process table of this machine as a tree, read from /proc. Standard library only: the runtime and its shims use it too.

Source: proc_pid_stat(5). A process is named by (pid, start time): a pid alone is given to another process some day.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    session: int
    started: int
    """Start time in clock ticks since boot."""
    zombie: bool


def parse_stat(text: str) -> Process:
    """Read one /proc/<pid>/stat. The command's name may hold spaces and parentheses, so fields are counted from the last ')'."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(
        pid=int(head.split(" ", 1)[0]), parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]), zombie=fields[0] in "ZX"
    )


def read(pid: int) -> Process | None:
    """The process with this pid, or None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse_stat(file.read())
    except OSError:  # it has ended, or is hidden from this user
        return None


def table() -> dict[int, Process]:
    """Every process by pid. About 20 µs a process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := read(int(name))):
            found[process.pid] = process
    return found


def descendants(roots: Iterable[int], processes: dict[int, Process]) -> list[int]:
    """The pids below `roots`, the roots themselves not counted, zombies neither."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if not processes[pid].zombie]
