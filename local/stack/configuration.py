"""Reads the configuration before anything is started, by Trainyard's reader as a program: nothing here imports it or knows its files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.stack.events import StackError
from local.stack.state import CHECKOUT

READ = """
import json, sys
from trainyard.errors import ConfigError
from trainyard.settings import load
try:
    found = load(sys.argv[1])
except ConfigError as error:
    sys.exit(str(error))
cluster = found.cluster
print(json.dumps({
    "pipelines": sorted(found.pipelines),
    "kubeconfig": cluster.kubeconfig,
    "sync_kubeconfig": cluster.sync_kubeconfig,
    "s3_mode": cluster.s3.mode,
    "s3_endpoint": cluster.s3.endpoint,
}))
"""
BOUND_S = 60.0


@dataclass(frozen=True)
class Found:
    """What the starter must know of the configuration."""

    pipelines: list[str]
    kubeconfig: str | None
    """Of the cluster profile; None where the profile leaves it to the environment."""
    s3_mode: str
    """``managed``: the S3 server is ours to start; ``external``: somebody else's."""
    s3_endpoint: str | None
    sync_kubeconfig: str | None = None
    """As ``kubeconfig``, of the identity that makes tenants' namespaces."""


def read(folder: Path, cluster: str, environment: Mapping[str, str]) -> Found:
    """Reads it all. Raises StackError with its problems, one a line, each with file, key and way out."""
    env = {**environment, "PYTHONPATH": str(CHECKOUT / "plugins"), "TRAINYARD_CONFIG": str(folder), "TRAINYARD_CLUSTER": cluster}
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ, str(folder)], cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=BOUND_S
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{folder}: reading the configuration takes more than {BOUND_S:.0f} s: see `trainyard validate`") from error
    if done.returncode != 0:
        raise StackError(done.stderr.strip() or f"{folder}: `trainyard validate` ends with {done.returncode}")
    return Found(**json.loads(done.stdout))
