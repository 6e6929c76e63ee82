"""A program of a test, run with Airflow's own modules on a database of its own, with the DAGs of tenant vision."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]


def installed_policy(folder: Path) -> Path:
    """The entry point that pyproject.toml declares, as an installation has it: so Airflow finds the policy."""
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"]["airflow.policy"]
    info = folder / "trainyard_entry_points-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trainyard-entry-points\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in declared.items()]
    (info / "entry_points.txt").write_text("\n".join(["[airflow.policy]", *lines, ""]))
    return folder


def run_program(program: Path, folder: Path, config: Path, *, timeout_s: float, **settings: str) -> dict[str, Any]:
    """What ``program`` printed after RESULT; it is given the bundle's folder. ``settings`` are more variables of Airflow's."""
    bundle = folder / "bundles" / "vision"
    bundle.mkdir(parents=True)
    shutil.copy(CHECKOUT / "dags" / "training_dag.py", bundle)
    bundles = [{"name": "vision", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(bundle)}}]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINYARD_"))}
    environment |= {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "plugins"), str(installed_policy(folder / "site"))]),
        "TRAINYARD_CONFIG": str(config),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        **settings,
    }
    migrate = subprocess.run(["airflow", "db", "migrate"], env=environment, capture_output=True, text=True, timeout=180)
    assert migrate.returncode == 0, migrate.stderr[-3000:]
    ran = subprocess.run([sys.executable, str(program), str(bundle)], env=environment, capture_output=True, text=True, timeout=timeout_s)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, (ran.stdout + ran.stderr)[-6000:]
    document: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return document
