"""Who runs, who is left over and who has a port: looked up in /proc, without trusting names or environments.

A process is identified by its pid and its start time (clock ticks since boot): a pid alone is reused.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from local.stack.shim import descendants, stat_fields


@dataclass(frozen=True)
class Identity:
    """One process, for good: its pid and its start time in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Identity:
        """Raises ProcessLookupError when there is no such process."""
        try:
            return cls(pid, int(stat_fields(pid)[19]))
        except (OSError, ValueError) as error:
            raise ProcessLookupError(pid) from error

    def alive(self) -> bool:
        """True while this very process runs (a zombie does not)."""
        try:
            fields = stat_fields(self.pid)
        except (OSError, ValueError):
            return False
        return int(fields[19]) == self.started and fields[0] != "Z"


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Signals each; those already gone are no error."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def members(session: Identity) -> list[int]:
    """The living processes of the session whose leader was `session`, the leader included.

    A session number is not given away while it has members, so members that started no earlier than the leader are its own, unless
    the leader's pid now belongs to a younger process: then the number was reused and there are none.
    """
    try:
        now = Identity.of(session.pid)
        if now.started != session.started:
            return []
    except ProcessLookupError:
        pass
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = stat_fields(int(entry))
        except (OSError, ValueError):
            continue
        if int(fields[3]) == session.pid and fields[0] != "Z" and int(fields[19]) >= session.started:
            found.append(int(entry))
    return found


def recorded(run: Path) -> dict[str, tuple[Identity, Identity]]:
    """What the shims wrote into `run`: component name -> (shim, main process). A torn record is skipped: its writer never ran on."""
    found = {}
    for path in sorted(run.glob("*.process.json")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            found[str(value["name"])] = (Identity(*value["shim"]), Identity(*value["main"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def left_over(run: Path) -> list[int]:
    """Living processes of the components recorded in `run`: shims, their descendants, and the sessions of their main processes."""
    found: set[int] = set()
    for shim, main in recorded(run).values():
        if shim.alive():
            found.add(shim.pid)
            found.update(descendants(shim.pid))
        for pid in members(main):
            found.add(pid)
            found.update(descendants(pid))
    return sorted(found)


def sweep(run: Path, *, bound_s: float = 10.0) -> list[int]:
    """Kills what an earlier starter left, and forgets the records. Returns the pids killed; raises TimeoutError naming survivors."""
    killed: set[int] = set()
    deadline = time.monotonic() + bound_s
    while alive := left_over(run):
        killed.update(alive)
        kill(alive)
        if time.monotonic() > deadline:
            raise TimeoutError(f"these processes of an earlier start cannot be killed: {', '.join(map(str, alive))}")
        time.sleep(0.05)
    for path in run.glob("*.process.json*"):
        path.unlink(missing_ok=True)
    return sorted(killed)


def command_of(pid: int) -> str:
    """The command line of a process, shortened for a message; '' when it cannot be read."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = " ".join(word.decode("utf-8", "replace") for word in words if word)
    return text if len(text) <= 80 else text[:77] + "…"


def listener(port: int) -> tuple[int, str] | None:
    """(pid, command) of the process that listens on TCP `port`, where it may be known: another user's cannot be seen."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:  # 0A: LISTEN
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with os.scandir(f"/proc/{entry}/fd") as descriptors:
                for descriptor in descriptors:
                    if os.readlink(descriptor.path) in inodes:
                        return int(entry), command_of(int(entry))
        except OSError:
            continue
    return None
