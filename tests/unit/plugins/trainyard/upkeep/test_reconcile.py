"""What the platform's own DAG says and asks; what it does to pools is in api/test_real_airflow.py, to the cluster in tests/cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.errors import ConfigError
from trainyard.upkeep import airflow_rest
from trainyard.upkeep.changes import Change
from trainyard.upkeep.reconcile import report

CREATE = Change("namespace tenant-vision", "create", "pods must be restricted")
MISSING = Change("pool tenant-forecast", "missing", "a new tenant is Airflow's at its start: `trainyard sync` makes it")


def test_a_dry_run_says_what_it_would_do_and_what_only_an_administrator_can() -> None:
    assert report([MISSING, CREATE], dry_run=True) == [
        "would create namespace tenant-vision: pods must be restricted",
        "missing pool tenant-forecast: a new tenant is Airflow's at its start: `trainyard sync` makes it",
    ]
    assert report([CREATE], dry_run=False) == ["create namespace tenant-vision: pods must be restricted"]
    assert report([], dry_run=False) == ["nothing differs from the tenants' files"]


def test_the_login_is_the_platforms_own_or_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "http://127.0.0.1:8080/execution/")
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "passwords.json").write_text(json.dumps({"admin": "a", "_upkeep": "u"}))
    found = airflow_rest.find_login({"TRAINYARD_STATE": str(tmp_path)})
    assert (found.url, found.user, found.password) == ("http://127.0.0.1:8080", "_upkeep", "u")
    assert "u'" not in repr(found).replace("_upkeep'", "")
    named = tmp_path / "named.json"
    named.write_text(json.dumps({"url": "https://airflow.example.com/", "user": "x", "password": "y"}))
    found = airflow_rest.find_login({"TRAINYARD_STATE": str(tmp_path), "TRAINYARD_AIRFLOW_CREDENTIALS": str(named)})
    assert (found.url, found.user, found.password) == ("https://airflow.example.com", "x", "y")


@pytest.mark.parametrize("text", ["{", "[]", '{"url": "http://a"}', None])
def test_a_file_that_cannot_be_used_is_one_error_with_the_way_out(tmp_path: Path, text: str | None) -> None:
    named = tmp_path / "named.json"
    if text is not None:
        named.write_text(text)
    with pytest.raises(ConfigError, match=r'TRAINYARD_AIRFLOW_CREDENTIALS=.*it must be JSON: \{"url"') as caught:
        airflow_rest.find_login({"TRAINYARD_AIRFLOW_CREDENTIALS": str(named)})
    assert "\n" not in str(caught.value)


def test_no_login_at_all_names_both_ways(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`trainyard sync` makes one, or TRAINYARD_AIRFLOW_CREDENTIALS names a file"):
        airflow_rest.find_login({"TRAINYARD_STATE": str(tmp_path)})
