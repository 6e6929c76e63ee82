"""Form runs, a backfill over versions and a scheduled tick, made by Airflow itself on a database of its own."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dags.airflow_program import CHECKOUT, run_program

PROGRAM = Path(__file__).with_name("airflow_runs_program.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program found."""
    folder = tmp_path_factory.mktemp("airflow-runs")
    config = folder / "config"
    shutil.copytree(CHECKOUT / "config", config)
    ticking = yaml.safe_load((config / "pipelines" / "digits-mlp.yaml").read_text())
    ticking |= {"schedule": "* * * * *", "export": {"model": "ticking"}}
    (config / "pipelines" / "ticking.yaml").write_text(yaml.safe_dump(ticking))
    return run_program(PROGRAM, folder, config, timeout_s=240)


def test_a_gangs_slots_are_the_forms(done: dict[str, Any]) -> None:
    pipelines = {name: yaml.safe_load((CHECKOUT / f"config/pipelines/{name}.yaml").read_text())["gang"] for name in ("digits-mlp",)}
    gang = pipelines["digits-mlp"]
    assert done["plain"]["slots"]["train"] == 1 + gang["workers"] + gang["parameter_servers"]
    assert done["smaller"]["slots"]["train"] == 3, "1 worker + 1 PS + chief, and mnist-cnn's own gang is larger"
    assert done["smaller"]["slots"]["evaluate"] == 1


def test_a_wrong_form_makes_no_run(done: dict[str, Any]) -> None:
    assert "workers" in done["wrong"]["workers"]
    assert "no dataset version '9.9.9'; there are 1.0.0, 1.1.0" in done["wrong"]["version"]


def test_a_backfill_makes_one_run_a_version_and_passes_over_what_was_run(done: dict[str, Any]) -> None:
    found = done["backfill"]
    # 1.0.0 was run by the form before: Airflow's backfill passes over it.
    assert found["planned"] == ["1.1.0"]
    assert [(key, conf) for key, _, conf in found["made"]] == [("1.1.0", {"epochs": 1})]
    assert found["planned_again"] == 0


def test_a_tick_is_the_newest_version_and_the_next_one_is_later(done: dict[str, Any]) -> None:
    found = done["tick"]
    assert [key for key, _ in found["made"]] == ["1.1.0"] == [found["key"]]
    made_for = datetime.datetime.fromisoformat(found["made"][0][1])
    assert made_for == datetime.datetime.fromisoformat(found["due"])
    assert datetime.datetime.fromisoformat(found["next"]) > made_for


def test_a_pipeline_without_a_schedule_is_not_started_by_itself(done: dict[str, Any]) -> None:
    assert done["on_request"] == "None"
