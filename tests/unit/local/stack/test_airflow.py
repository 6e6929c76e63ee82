"""Airflow's settings: ours with sync's on top, secrets kept, airflow.cfg as Airflow itself reads it."""

from __future__ import annotations

import configparser
import datetime
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from local.stack import ports
from local.stack.airflow import Airflow, render
from local.stack.events import StackError
from local.stack.state import State

BUNDLES = '[{"name": "vision", "kwargs": {"path": "/x%20y"}}]'


@pytest.fixture
def airflow(tmp_path: Path) -> Airflow:
    return Airflow(State.at(tmp_path), ports.plan(20000))


def read(airflow: Airflow) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()  # interpolates, as Airflow's does
    parser.read(airflow.home / "airflow.cfg")
    return parser


def test_promised_settings(airflow: Airflow) -> None:
    """What the measurements demand: a change here is a change of behaviour under faults."""
    airflow.prepare()
    found = read(airflow)
    assert found["workers"]["min_heartbeat_interval"] == "1"
    assert int(found["core"]["parallelism"]) >= 8
    assert found["core"]["multi_team"] == "True"
    assert found["core"]["load_examples"] == "False"
    assert found["core"]["dags_are_paused_at_creation"] == "False"
    assert found["scheduler"]["task_instance_heartbeat_timeout"] == "20"
    assert found["api"]["host"] == "127.0.0.1"


def test_the_port_is_told_in_all_its_places(airflow: Airflow) -> None:
    airflow.prepare()
    found = read(airflow)
    assert found["api"]["port"] == "20000"
    assert found["api"]["base_url"] == "http://127.0.0.1:20000"
    assert found["core"]["execution_api_server_url"] == "http://127.0.0.1:20000/execution/"


def test_secrets_and_password_are_made_once_and_private(airflow: Airflow) -> None:
    assert airflow.prepare() is True
    first, password = read(airflow), airflow.passwords_file.read_text()
    assert airflow.prepare() is False
    assert read(airflow) == first
    assert airflow.passwords_file.read_text() == password
    assert first["core"]["fernet_key"] != first["api"]["secret_key"]
    for path in (airflow.passwords_file, airflow.home / "airflow.cfg", airflow.home / "secrets.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_passwords_of_others_are_kept(airflow: Airflow) -> None:
    airflow.passwords_file.write_text('{"alice": "hers"}')
    airflow.prepare()
    found = json.loads(airflow.passwords_file.read_text())
    assert found["alice"] == "hers"
    assert found["admin"]


def test_syncs_settings_win_and_the_administrator_stays(airflow: Airflow) -> None:
    airflow.prepare()
    users = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "alice:user:vision", "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": BUNDLES}
    airflow.environment_file.write_text(json.dumps(users))
    assert airflow.prepare() is True
    found = read(airflow)
    assert found["core"]["simple_auth_manager_users"] == "admin:admin,alice:user:vision"
    assert found["dag_processor"]["dag_bundle_config_list"] == BUNDLES


@pytest.mark.parametrize("text", ["{", "[]", '{"PATH": "x"}', '{"AIRFLOW__CORE__PARALLELISM": 4}'])
def test_a_broken_file_of_sync_is_one_line(airflow: Airflow, text: str) -> None:
    airflow.environment_file.write_text(text)
    with pytest.raises(StackError, match=r"trainyard\.env\.json.*trainyard sync"):
        airflow.prepare()


def test_a_line_break_cannot_smuggle_in_a_setting() -> None:
    with pytest.raises(StackError, match="AIRFLOW__CORE__X has a line break"):
        render({"AIRFLOW__CORE__X": "1\n[api]\nport = 1"})


def test_the_database_is_migrated_once_a_version(airflow: Airflow) -> None:
    assert airflow.migration({}) is not None
    airflow.migrated()
    assert airflow.migration({}) is not None  # the stamp alone is no database
    (airflow.home / "airflow.db").write_text("")
    assert airflow.migration({}) is None
    (airflow.home / "migrated-to").write_text("2.0.0")
    assert airflow.migration({}) is not None


def test_no_component_serves_logs_on_a_port_of_its_own(airflow: Airflow) -> None:
    words = {component.name: list(component.program) for component in airflow.components({})}
    assert "--skip-serve-logs" in words["airflow-scheduler"]
    assert "--skip-serve-logs" in words["airflow-triggerer"]


def test_a_heartbeat_from_before_the_start_is_not_health(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    beat: dict[str, Any] = {"status": "healthy", "latest_scheduler_heartbeat": "2026-01-01T00:00:10+00:00"}
    monkeypatch.setattr(Airflow, "health", lambda self: {"scheduler": beat, "metadatabase": {"status": "healthy"}})
    before, after = (datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in (5, 15))
    assert airflow.healthy("scheduler", before)
    assert not airflow.healthy("scheduler", after)
    assert airflow.healthy("metadatabase", after)
    assert not airflow.healthy("triggerer")
