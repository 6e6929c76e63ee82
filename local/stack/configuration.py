"""Reads the configuration before anything is started, by Trainyard's reader as a program: nothing here imports it or knows its files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from local.stack.events import StackError
from local.stack.state import CHECKOUT

READ = """
import json, sys
from trainyard.errors import ConfigError
from trainyard.settings import load
try:
    print(json.dumps(sorted(load(sys.argv[1]).pipelines)))
except ConfigError as error:
    sys.exit(str(error))
"""
BOUND_S = 60.0


def pipelines(folder: Path, cluster: str, environment: Mapping[str, str]) -> list[str]:
    """The names of the configuration's pipelines. Raises StackError with its problems, one a line, each with file, key and way out."""
    env = {**environment, "PYTHONPATH": str(CHECKOUT / "plugins"), "TRAINYARD_CONFIG": str(folder), "TRAINYARD_CLUSTER": cluster}
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ, str(folder)], cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=BOUND_S
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{folder}: reading the configuration takes more than {BOUND_S:.0f} s: see `trainyard validate`") from error
    if done.returncode != 0:
        raise StackError(done.stderr.strip() or f"{folder}: `trainyard validate` ends with {done.returncode}")
    return [str(name) for name in json.loads(done.stdout)]
