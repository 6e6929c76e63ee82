"""A gang of real processes on this machine over a real S3: what a cluster would start, without the cluster. Used by tests only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server, free_ports
from trainer.spec import load
from trainer.steps.context import Context
from trainer.storage import keys
from trainer.storage.client import connect
from trainer.storage.objects import Bucket

SOURCES = Path(__file__).parents[5] / "images" / "trainer" / "src"
SAMPLES = Path(sys.prefix) / "share" / "samples"
DEADLINE_S = 180.0
"""For anything that a gang must reach; machines under test are busy."""


class Run:
    """One run in buckets of its own, with its data prepared by the real steps. The server's keys must be in the environment."""

    def __init__(self, server: S3Server, folder: Path, **changes: Any) -> None:
        self.server, self.folder = server, folder
        storage = {
            "endpoint": server.endpoint,
            "region": server.region,
            "bucket": server.new_bucket(),
            "models_bucket": server.new_bucket(),
        }
        self.document = run_spec_document(storage=storage, slot__cpu="1", **changes)
        spec = load(json.dumps(self.document))
        client = connect(spec.storage)
        folder.mkdir(parents=True, exist_ok=True)
        self.context = Context(spec, Bucket(client, spec.storage.bucket), Bucket(client, spec.storage.models_bucket), folder)
        self.set_generation(1)

    @property
    def data(self) -> Bucket:
        return self.context.data

    def set_generation(self, number: int) -> None:
        self.data.put_json(keys.generation(self.context.spec.run), {"generation": number, "spec_sha256": "0" * 64})

    def prepare(self) -> Run:
        """Runs the steps before training; the working directory must not be read by them."""
        from trainer.steps import plan, prepare, shard

        prepare.run(self.context)
        for index in range(self.context.spec.dataset.shard_tasks):
            shard.run(self.context, index)
        plan.run(self.context)
        return self


class Gang:
    """The processes of one generation, each in a directory of its own. Ends them all in ``close``."""

    def __init__(self, run: Run, generation: int = 1, supervised: bool = False) -> None:
        self.run, self.generation, self._supervised = run, generation, supervised
        spec = run.context.spec.gang
        ports = free_ports(1 + spec.parameter_servers + spec.workers)
        names = ["chief-0"] + [f"ps-{i}" for i in range(spec.parameter_servers)] + [f"worker-{i}" for i in range(spec.workers)]
        self.addresses: dict[str, list[str]] = {"chief": [], "ps": [], "worker": []}
        for name, port in zip(names, ports, strict=True):
            self.addresses[name.partition("-")[0]].append(f"127.0.0.1:{port}")
        self.names = names
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> Gang:
        """Starts the named replicas, all if none is named; one that was started before starts again in its old directory."""
        for name in names or self.names:
            role, _, index = name.partition("-")
            folder = self.folder(name)
            folder.mkdir(parents=True, exist_ok=True)
            environ = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(SOURCES),
                "HOME": str(folder),
                "TMPDIR": str(folder),
                **self.run.server.environ(),
                "TRAINYARD_RUN_SPEC": json.dumps(self.run.document),
                "TRAINYARD_ROLE": role,
                "JOB_COMPLETION_INDEX": index,
                "TRAINYARD_GANG": json.dumps({"generation": self.generation, "addresses": self.addresses}),
                "TRAINYARD_CPU_MILLIS": "1000",
                "TRAINYARD_POD_NAME": f"pod-{name}",
                "TRAINYARD_TERMINATION_LOG": str(folder / "termination-log"),
            }
            command = [sys.executable, "-m", "trainer.cli", "replica"]
            if self._supervised:
                command = [sys.executable, "-m", "trainer.supervisor", "--", *command]
            with (folder / "log.txt").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    command, cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
        return self

    def folder(self, name: str) -> Path:
        return self.run.folder / f"g{self.generation}" / name

    def log(self, name: str = "chief-0") -> str:
        path = self.folder(name) / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.kill()
        process.wait()

    def wait_log(self, text: str, name: str = "chief-0", deadline_s: float = DEADLINE_S) -> None:
        """Until ``text`` stands in the replica's log."""
        end = time.monotonic() + deadline_s
        while text not in self.log(name):
            code = self.processes[name].poll()
            if code is not None or time.monotonic() > end:
                raise AssertionError(f"{name} never said {text!r} (exit code {code}); its log:\n{self.log(name)[-4000:]}")
            time.sleep(0.05)

    def wait(self, name: str = "chief-0", deadline_s: float = DEADLINE_S) -> int:
        """The replica's exit code."""
        try:
            return self.processes[name].wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} did not end; its log:\n{self.log(name)[-4000:]}") from None

    def close(self) -> None:
        for process in self.processes.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
