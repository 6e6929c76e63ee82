"""The ``docker`` program as the command uses it: what it prints is read line by line, its failures are one clear error.

It is not a client of the engine: whatever stands behind the program (Docker, Podman's ``docker``), with BuildKit or without.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainyard.cli.exits import RunFailedError
from trainyard.errors import NotFoundError, UnavailableError

LAST_LINES: Final = 15
"""So many of a failed build's lines are shown."""
_CLASSIC: Final = re.compile(r"^Step (\d+)/(\d+) : (.*)")
_BUILDKIT: Final = re.compile(r"^#\d+ \[(?:\S+ +)?(\d+)/(\d+)\] (.*)")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Line:
    """One line of a build: which of its steps it begins, or None where it is the words of one."""

    text: str
    step: int | None = None
    steps: int | None = None

    @classmethod
    def read(cls, text: str) -> Line:
        """As the classic builder or BuildKit (``--progress=plain``) wrote it."""
        found = _CLASSIC.match(text) or _BUILDKIT.match(text)
        return cls(found[3], int(found[1]), int(found[2])) if found else cls(text)


class Docker:
    """A ``docker`` whose engine answers."""

    def __init__(self, program: str) -> None:
        self._program = program

    @classmethod
    def found(cls) -> Docker:
        """The one on PATH.

        Raises:
            NotFoundError: there is none.
            UnavailableError: its engine does not answer, or not to this user.
        """
        program = shutil.which("docker")
        if program is None:
            raise NotFoundError("there is no `docker` on PATH: install Docker (Debian: `apt install docker.io`), or build where it is")
        done = subprocess.run([program, "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UnavailableError(
                f"Docker's engine does not answer ({said}): start it, or have yourself allowed to use it (group `docker`)"
            )
        return cls(program)

    def run(self, words: Sequence[str], on_line: Callable[[Line], None], environment: Mapping[str, str] | None = None) -> float:
        """Runs ``docker WORDS…`` to its end, with variables beside its own, and gives the seconds it took.

        Raises:
            RunFailedError: it failed; its last lines are in the text.
        """
        began = time.monotonic()
        last: deque[str] = deque(maxlen=LAST_LINES)
        # Both streams as one: the classic builder's steps come on stdout, BuildKit's on stderr, and complaints stand where they arose.
        program = subprocess.Popen(
            [self._program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        )
        assert program.stdout is not None
        try:
            for raw in program.stdout:
                if text := _COLOUR.sub("", raw).rstrip():
                    last.append(text)
                    on_line(Line.read(text))
            code = program.wait()
        except BaseException:
            program.terminate()
            program.wait()
            raise
        if code:
            raise RunFailedError("\n".join([f"`docker {words[0]}` failed ({code}); its last lines:", *(f"  {text}" for text in last)]))
        return time.monotonic() - began

    def bytes_of(self, reference: str) -> int:
        """Bytes of an image unpacked, its base with it."""
        return int(self._ask("image", "inspect", "--format", "{{.Size}}", reference))

    def packed_layers(self, reference: str) -> list[int]:
        """Bytes of each layer as the registry holds it, the lowest first: their sum is what a node downloads that has none of it.

        Raises:
            UnavailableError: the registry does not say.
        """
        document: Any = json.loads(self._ask("manifest", "inspect", "--insecure", reference))
        return [int(layer["size"]) for layer in document["layers"]]

    def _ask(self, *words: str) -> str:
        done = subprocess.run([self._program, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"`docker {' '.join(words)}` failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return done.stdout
