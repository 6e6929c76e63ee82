"""How long a container takes to end after TERM."""

from __future__ import annotations

import datetime
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence

from tests.images.conftest import Image, run

READY_S = 60


def seconds_to_end(image: Image, words: Sequence[str], ready: Callable[[str], bool]) -> tuple[float, int]:
    """Starts a container, sends TERM when it is ready; gives the seconds to its end, by the engine's clock, and its exit code."""
    name = f"trainyard-test-{uuid.uuid4().hex[:12]}"
    command, *arguments = words
    run(
        *("docker", "run", "--detach", "--name", name, "--read-only", "--tmpfs", "/work", "--network", "none"),
        *("--entrypoint", command, image.reference, *arguments),
    )  # fmt: skip
    try:
        until = time.monotonic() + READY_S
        while not ready(name):
            assert time.monotonic() < until, run("docker", "logs", name).stdout
            time.sleep(0.1)
        sent = datetime.datetime.now(datetime.UTC)
        run("docker", "kill", "--signal", "TERM", name)
        try:
            run("docker", "wait", name, timeout_s=40)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{' '.join(words)} did not end within 40 s of TERM") from error
        code, ended = run("docker", "inspect", "--format", "{{.State.ExitCode}} {{.State.FinishedAt}}", name).stdout.split()
        # Nanoseconds are more than Python reads.
        return (datetime.datetime.fromisoformat(f"{ended[:26].rstrip('Z')}+00:00") - sent).total_seconds(), int(code)
    finally:
        run("docker", "rm", "--force", name, check=False)


def shows(command: str) -> Callable[[str], bool]:
    """Whether a process of just this command line runs in the container."""

    def found(name: str) -> bool:
        rows = run("docker", "top", name, "-o", "pid,args", check=False).stdout.splitlines()[1:]
        return any(row.split(maxsplit=1)[1:] == [command] for row in rows)

    return found
