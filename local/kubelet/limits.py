"""Memory limits: a container that uses more is killed, as the kernel does with a cgroup, and shown as OOMKilled.

What is measured is PSS (proportional set size), so pages that TensorFlow processes share count once among them. It is polled: a container
can be over its limit for one interval. PSS is dear to read, so it is read only where RSS, which is never smaller, is over the limit.
Source: proc_pid_smaps(5).
"""

import contextlib
import logging
import threading
from collections.abc import Callable

from local.kubelet import proctree
from local.kubelet.processes import Process, RuntimeLost

log = logging.getLogger(__name__)

INTERVAL_S = 0.2
"""Between two looks while a container with a limit runs. One look costs about 20 µs for each process of the machine."""
IDLE_S = 0.5

_PAGE = 4096


def rss_bytes(pid: int) -> int:
    """Resident memory of one process; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def pss_bytes(pid: int) -> int:
    """Proportional set size of one process; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def usage_over(pids: list[int], limit: int) -> int | None:
    """The memory of these processes where it is more than `limit`, else None."""
    if sum(rss_bytes(pid) for pid in pids) <= limit:
        return None
    used = sum(pss_bytes(pid) for pid in pids)
    return used if used > limit else None


class MemoryLimits:
    """Looks at all running containers again and again."""

    def __init__(self, running: Callable[[], list[Process]], kill: Callable[[Process], None]) -> None:
        self._running = running
        self._kill = kill

    def watch(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        while not stop.wait(INTERVAL_S if self.look() else IDLE_S):
            pass

    def look(self) -> bool:
        """Kill what is over its limit now. Returns whether any running container has a limit."""
        limited = [process for process in self._running() if process.memory_limit or process.group_memory_limit]
        if not limited:
            return False
        table = proctree.table()
        trees = {process.id: [process.pid, *proctree.descendants([process.pid], table)] for process in limited if process.pid}
        for process in limited:
            if process.memory_limit and (used := usage_over(trees.get(process.id, []), process.memory_limit)):
                self._end(process, used, process.memory_limit, "its limit")
        self._look_at_groups(limited, trees)
        return True

    def _look_at_groups(self, limited: list[Process], trees: dict[str, list[int]]) -> None:
        """A limit on the whole pod: the largest container is killed."""
        groups: dict[str, list[Process]] = {}
        for process in limited:
            if process.group_memory_limit and not process.out_of_memory:
                groups.setdefault(process.group, []).append(process)
        for members in groups.values():
            limit = members[0].group_memory_limit or 0
            pids = [pid for member in members for pid in trees.get(member.id, [])]
            if used := usage_over(pids, limit):
                largest = max(members, key=lambda member: sum(rss_bytes(pid) for pid in trees.get(member.id, [])))
                self._end(largest, used, limit, "its pod's limit")

    def _end(self, process: Process, used: int, limit: int, what: str) -> None:
        if process.out_of_memory:
            return
        process.out_of_memory = True
        log.info("container %s: %d MiB is over %s of %d MiB: killing it", process.id, used >> 20, what, limit >> 20)
        with contextlib.suppress(RuntimeLost):  # then it is killed already
            self._kill(process)
