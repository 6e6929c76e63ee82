"""Where a container's absolute paths are on this machine: a process has no mount namespace, so paths are rewritten where they are given.

A value *is* such a path when it starts with a mountPath at a component's border (`/data`, `/data/x`, not `/database`), or is a flag whose
value does (`--out=/data/x`). Nothing inside a longer text is touched: a shell script names the variable instead
(TRAINYARD_MOUNT_<VOLUME>, docs/embedded-kubelet.md).
"""

import re
from pathlib import Path

_FLAG = re.compile(r"^(--?[A-Za-z0-9][\w.-]*=)?(/.*)$", re.DOTALL)


class PathMap:
    """The mounts of one container: absolute path in the container to a path here."""

    def __init__(self) -> None:
        self._mounts: list[tuple[str, Path]] = []

    def add(self, inside: str, here: Path) -> None:
        """Map `inside` and all below it."""
        self._mounts.append((inside.rstrip("/") or "/", here))
        self._mounts.sort(key=lambda mount: len(mount[0]), reverse=True)

    def find(self, path: str) -> Path | None:
        """Where an absolute path is, or None where no mount holds it. The deepest mount wins."""
        for inside, here in self._mounts:
            if path == inside or path.startswith(inside + "/"):
                rest = path[len(inside) :].lstrip("/")
                return here / rest if rest else here
        return None

    def rewritten(self, value: str) -> str:
        """The value with its path mapped, or as it is."""
        flag = _FLAG.match(value)
        if not flag:
            return value
        here = self.find(flag[2])
        if here is None:
            return value
        end = "/" if flag[2].endswith("/") else ""
        return f"{flag[1] or ''}{here}{end}"
