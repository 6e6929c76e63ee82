"""The platform's own DAGs as Airflow reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainyard.contract import names

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "dags" / "platform"


@pytest.fixture(scope="module")
def bag() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(str(FOLDER))


def test_each_file_is_one_dag_of_its_name(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {path.stem.removesuffix("_dag") for path in FOLDER.glob("*_dag.py")}
    assert {"reconcile_tenants", "reap_stray_jobs"} <= set(bag.dags)


def test_every_task_is_in_the_platforms_pool_and_before_all_others(bag: Any) -> None:
    for dag in bag.dags.values():
        assert dag.max_active_runs == 1
        assert not dag.catchup
        for task in dag.tasks:
            assert task.pool == names.UPKEEP_POOL, task
            # Airflow keeps the word for some operators, and its strategy for others.
            rule = task.weight_rule if isinstance(task.weight_rule, str) else type(task.weight_rule).__name__
            assert (task.priority_weight, "absolute" in rule.lower()) == (2_000_000, True), task


def test_reading_them_asks_no_network_and_no_heavy_library() -> None:
    """In an interpreter of its own, without sockets."""
    program = f"""
import socket, sys
def refuse(*a, **k): raise AssertionError("a socket at parse")
socket.socket.connect = refuse
sys.path.insert(0, {str(CHECKOUT / "plugins")!r})
import runpy
for path in {[str(path) for path in sorted(FOLDER.glob("*_dag.py"))]!r}:
    runpy.run_path(path)
heavy = {{"tensorflow", "boto3", "pandas"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
