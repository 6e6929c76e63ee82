"""A container as its kubelet would run it: the supervisor as a real process in a folder of its own, its S3 a real server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server

SOURCE = Path(__file__).parents[5] / "images" / "trainer" / "src"
DEADLINE_S = 60


@dataclass
class Container:
    """A supervised command."""

    process: subprocess.Popen[bytes]
    folder: Path
    replica: str
    logs: Logs
    stdout: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        return self.process.wait(deadline_s)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def printed(self) -> bytes:
        return self.stdout.read_bytes()

    def until_printed(self, text: bytes, deadline_s: float = DEADLINE_S) -> None:
        until(lambda: text in self.printed(), f"{text!r} on stdout", deadline_s)

    def message(self) -> str:
        path = self.folder / "termination-log"
        return path.read_text() if path.exists() else ""


@dataclass
class Logs:
    """The log store of a run."""

    client: Any
    bucket: str
    run: str

    def keys(self, replica: str) -> list[str]:
        prefix = f"runs/{self.run}/logs/{replica}/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def chunks(self, replica: str) -> list[bytes]:
        keys = [key for key in self.keys(replica) if key.endswith(".log")]
        return [self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys]

    def text(self, replica: str) -> bytes:
        return b"".join(self.chunks(replica))

    def end(self, replica: str) -> dict[str, Any] | None:
        found = [key for key in self.keys(replica) if key.endswith("/end.json")]
        return json.loads(self.client.get_object(Bucket=self.bucket, Key=found[0])["Body"].read()) if found else None


@dataclass
class Containers:
    """Starts containers of one run."""

    server: S3Server
    bucket: str
    root: Path
    run: str = "digits-mlp-0123456789"
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def logs(self) -> Logs:
        return Logs(self.server.client(), self.bucket, self.run)

    def start(
        self,
        script: str,
        *,
        replica: str = "prepare",
        endpoint: str | None = None,
        gang: dict[str, Any] | None = None,
        closed_stdout: bool = False,
    ) -> Container:
        """Supervises ``python -c script``; with ``gang`` as a gang's replica."""
        folder = self.root / f"{replica}-{len(self.started)}"
        folder.mkdir()
        spec = run_spec_document(run=self.run, storage__endpoint=endpoint or self.server.endpoint, storage__bucket=self.bucket)
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCE),
            "HOME": str(folder),
            "TRAINYARD_RUN_SPEC": json.dumps(spec),
            "TRAINYARD_POD_NAME": f"pod-{len(self.started)}",
            "TRAINYARD_TERMINATION_LOG": str(folder / "termination-log"),
            **self.server.environ(),
        }
        if gang is None:
            variables["TRAINYARD_REPLICA"] = replica
        else:
            role, _, index = replica.rpartition("-")
            variables |= {"TRAINYARD_ROLE": role, "JOB_COMPLETION_INDEX": index, "TRAINYARD_GANG": json.dumps(gang)}
        stdout = folder / "stdout"
        with stdout.open("wb") if not closed_stdout else _unread_pipe() as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainer.supervisor", "--", sys.executable, "-u", "-c", script],
                cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.started.append(process)
        return Container(process, folder, replica, self.logs, stdout)


@contextlib.contextmanager
def _unread_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """What the condition gives once it is true; fails at the deadline."""
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {deadline_s} s")
        time.sleep(0.05)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.fixture
def containers(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> Iterator[Containers]:
    made = Containers(s3_server, s3_bucket, tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.wait()
