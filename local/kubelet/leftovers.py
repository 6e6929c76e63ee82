"""What an earlier kubelet left running, should its runtime have been killed together with it: found and killed before anything starts.

A process is a left-over when a record below the root names it (pid and start time), when its session is that of such a process, or when
its environment names the pods' folder (every container's HOME is there, whatever its descendants did to their session and parent).
"""

import contextlib
import json
import logging
import os
import signal
import time
from pathlib import Path

from local.kubelet import proctree

log = logging.getLogger(__name__)

_WAIT_S = 5.0


def find(pods: Path) -> list[int]:
    """The pids of left-over processes."""
    table = proctree.table()
    recorded: set[int] = set()
    sessions: dict[int, int] = {}
    for record in pods.glob("*/containers/*/state.json"):
        try:
            state = json.loads(record.read_text(encoding="utf-8"))
            named = [(int(state[key]["pid"]), int(state[key]["started"])) for key in ("shim", "process")]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for pid, started in named:
            if pid in table and table[pid].started == started and not table[pid].zombie:
                recorded.add(pid)
        sessions[named[1][0]] = named[1][1]
    mine = os.getpid()
    found = set(recorded) | set(proctree.descendants(recorded, table))
    for process in table.values():
        # A session outlives its leader, and its number is not given again while it lives.
        in_session = process.session in sessions and process.started >= sessions[process.session] and process.session not in table
        if process.pid != mine and not process.zombie and (in_session or _environment_names(process.pid, pods)):
            found.add(process.pid)
    return sorted(found - {mine})


def _environment_names(pid: int, pods: Path) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return False
    return b"\0HOME=%s/" % os.fsencode(pods) in b"\0" + environment


def reap(pods: Path) -> int:
    """Kill all left-overs and wait until they are gone; how many there were."""
    first = find(pods)
    deadline = time.monotonic() + _WAIT_S
    left = first
    while left and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        left = find(pods)
    if first:
        log.warning("killed %d processes that an earlier kubelet left (%s)", len(first), ", ".join(map(str, first[:20])))
    if left:
        log.error("%d processes of an earlier kubelet cannot be killed: %s", len(left), left)
    return len(first)
