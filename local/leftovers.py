"""Finds what a platform left running, without asking the platform: for the demonstration and the tests, which must not take its word.

A process belongs to a state folder when it works in it, writes to a file of it, or was told of it by its environment (a reader, as
`tail -f` in another terminal, does not). It is no net: local/stack/processes.py is.
"""

from __future__ import annotations

import os
from pathlib import Path


def processes_of(state: Path) -> dict[int, str]:
    """pid -> command line of every living process of this user that has to do with the state folder; this one and its parents left out."""
    root = str(state.resolve())
    mine = _ancestry(os.getpid())
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in mine:
            continue
        folder = Path("/proc") / entry
        try:
            if (folder / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] == "Z":
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            told = f"TRAINYARD_STATE={root}\0" in (folder / "environ").read_bytes().decode(errors="replace") + "\0"
            if told or _within(os.readlink(folder / "cwd"), root) or _writes_in(folder, root):
                found[int(entry)] = command or f"[{entry}]"
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def _within(place: str, root: str) -> bool:
    return place == root or place.startswith(root + "/")


def _writes_in(folder: Path, root: str) -> bool:
    for descriptor in os.listdir(folder / "fd"):
        try:
            if not _within(os.readlink(folder / "fd" / descriptor), root):
                continue
            flags = (folder / "fdinfo" / descriptor).read_text().split("flags:", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            return True
    return False


def _ancestry(pid: int) -> set[int]:
    found = set()
    while pid > 0:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
    return found
