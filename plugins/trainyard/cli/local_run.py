"""``trainyard run --local``: the user's model in one process of this machine, on the real shards, for finding one's bugs in seconds.

The platform makes the run spec as it would for a real run and gives links to the shards; the trainer is started as a program. Nothing is
published, recorded or exported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainyard.cli import places, wheel
from trainyard.cli.client import Client
from trainyard.cli.download import fetch_cached
from trainyard.cli.exits import Exit
from trainyard.cli.output import Output
from trainyard.errors import NotFoundError


def train_here(
    client: Client, chosen: dict[str, Any], version: str | None, values: dict[str, Any], package: Path | None, out: Output
) -> Exit:
    """Trains and says how it ended; the trainer's own words go straight to the terminal."""
    paths = _trainer_paths()
    if package is not None:
        wheel.build(package)  # only for what it refuses: a syntax error is found before the data is fetched
        wheel.check_build(package.resolve(), chosen["build"])
        paths.append(str(package.resolve().parent))
    found = client.local_run(chosen["dag_id"], version, values)
    spec = found["spec"]
    cache = (
        Path(os.environ.get("TRAINYARD_CACHE") or Path.home() / ".cache" / "trainyard")
        / "shards"
        / spec["dataset"]["name"]
        / spec["dataset"]["version"]
        / spec["dataset"]["layout"]
    )
    out.remark(f"{len(found['files'])} shard files of {spec['dataset']['name']} {spec['dataset']['version']} in {cache}")
    fetch_cached(found["files"], cache)
    (cache / "manifest.json").write_text(json.dumps(found["manifest"]))
    with tempfile.TemporaryDirectory(prefix="trainyard-local-") as work:
        spec_file = Path(work) / "spec.json"
        spec_file.write_text(json.dumps(spec))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*paths, os.environ.get("PYTHONPATH")]))}
        metrics_file = Path(work) / "metrics.json"
        command = [
            sys.executable,
            "-m",
            "trainer.cli",
            "local",
            "--spec",
            str(spec_file),
            "--data",
            str(cache),
            "--metrics",
            str(metrics_file),
        ]
        # With --json the trainer's lines are remarks: stdout is for documents alone.
        code = subprocess.run(command, cwd=work, env=environment, stdout=sys.stderr if out.as_json else None, check=False).returncode
        metrics = json.loads(metrics_file.read_text()) if code == 0 and metrics_file.is_file() else None
    if code == 0 and metrics is None:
        # os._exit() in the user's code: nothing in that process can catch it.
        out.remark("error: the process ended itself before the metrics: code of a run must not call os._exit()")
    out.document({"event": "end", "state": "success" if metrics else "failed", "exit_code": code, "metrics": metrics})
    return Exit.OK if metrics else Exit.RUN_FAILED


def _trainer_paths() -> list[str]:
    root = places.checkout()
    if root is not None and (root / "images" / "trainer" / "src").is_dir():
        return [str(root / "images" / "trainer" / "src")]
    if importlib.util.find_spec("trainer") is not None:
        return []
    raise NotFoundError("`--local` needs the trainer in this environment: use ./trainyard of a checkout")
