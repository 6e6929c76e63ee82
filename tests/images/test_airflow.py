"""Airflow's image: its own programs find our plugin, policy and DAG files, and the upkeep pods find what they need."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.images.conftest import CHECKOUT, Image
from tests.images.ending import seconds_to_end, shows

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MOST_S = 2.0
"""From TERM to the container's end."""
IMPORTS = """
import importlib, json, pkgutil, sys
import trainyard
names = [found.name for found in pkgutil.walk_packages(trainyard.__path__, "trainyard.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
from importlib.metadata import entry_points, version
policy = [entry.value for entry in entry_points(group="airflow.policy")]
foreign = sorted({"tensorflow", "keras", "numpy", "trainer"} & set(sys.modules))
print(json.dumps({"modules": len(names), "policy": policy, "version": version("trainyard"), "foreign": foreign}))
"""
DAGS = """
import json
from airflow.dag_processing.dagbag import DagBag
found = DagBag("/work/bundles/{tenant}")
timetables = sorted({{type(dag.timetable).__name__ for dag in found.dags.values()}})
print(json.dumps({{"errors": found.import_errors, "dags": sorted(found.dags), "timetables": timetables}}))
"""


def test_upkeep_is_there(airflow: Image) -> None:
    done = airflow.run("python", "-m", "trainyard.upkeep", "clean-up", "--help")
    assert "--outcome" in done.stdout
    done = airflow.run("python", "-m", "trainyard.upkeep", "clean-up", "--tenant", "vision", "--run", "x", check=False)
    assert done.returncode == 2, done.stderr
    assert "neither --bucket nor TRAINYARD_RUN_SPEC" in done.stderr


def test_everything_of_ours_can_be_imported(airflow: Image) -> None:
    found = json.loads(airflow.python(IMPORTS).splitlines()[-1])
    assert found["modules"] > 100
    assert found["policy"] == ["trainyard.pipelines.policy"]
    assert found["foreign"] == []
    assert f'version = "{found["version"]}"' in (CHECKOUT / "pyproject.toml").read_text()


def test_airflow_loads_our_plugin(airflow: Image) -> None:
    done = airflow.run("airflow", "plugins", "-o", "json")
    names = [plugin["name"] for plugin in json.loads(done.stdout[done.stdout.index("[") :])]
    assert "trainyard" in names


def test_its_dags_are_those_of_the_configuration(airflow: Image) -> None:
    """A tenant's bundle as `trainyard sync` makes it: a copy of the image's own DAG file in a folder named after the tenant."""
    pipelines = [yaml.safe_load(path.read_text()) for path in sorted((CHECKOUT / "config/pipelines").glob("*.yaml"))]
    tenant = pipelines[0]["tenant"]
    bundle = f"/work/bundles/{tenant}"
    program = f"mkdir -p {bundle} && cp /opt/trainyard/dags/training_dag.py {bundle} && exec python -c '{DAGS.format(tenant=tenant)}'"
    config = ("--volume", f"{CHECKOUT / 'config'}:/config:ro", "--env", "TRAINYARD_CONFIG=/config")
    database = ("--env", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=sqlite:////work/airflow.db", "--env", "AIRFLOW__CORE__MULTI_TEAM=True")
    found = json.loads(airflow.run("sh", "-c", program, options=(*config, *database)).stdout.splitlines()[-1])
    assert found["errors"] == {}
    assert len(found["dags"]) == sum(pipeline["tenant"] == tenant for pipeline in pipelines)
    assert found["timetables"] == ["DatasetVersionTimetable"]


def test_it_has_postgresqls_drivers(airflow: Image) -> None:
    assert airflow.python("import asyncpg, psycopg2; print('both')").strip() == "both"


def test_term_ends_airflow_while_it_still_imports(airflow: Image) -> None:
    took, exit_code = seconds_to_end(airflow, ["airflow", "version"], shows("/opt/airflow/bin/python /opt/airflow/bin/airflow version"))
    assert exit_code == 143
    assert took <= MOST_S
