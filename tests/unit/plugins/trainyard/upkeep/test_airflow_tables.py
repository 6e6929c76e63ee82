"""Teams and pools in a real Airflow database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.plugins.trainyard.upkeep.conftest import changed, with_tenants
from trainyard.errors import RefusedError, UnavailableError
from trainyard.settings import Settings
from trainyard.upkeep import airflow_tables
from trainyard.upkeep.changes import needs_restart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An AIRFLOW_HOME with a migrated SQLite database."""
    folder = tmp_path_factory.mktemp("airflow")
    lines = ["[core]", "load_examples = False", "[database]", f"sql_alchemy_conn = sqlite:///{folder}/airflow.db"]
    lines += ["[logging]", f"base_log_folder = {folder}/logs", ""]
    (folder / "airflow.cfg").write_text("\n".join(lines))
    environment = {**os.environ, "AIRFLOW_HOME": str(folder)}
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=environment, check=True, capture_output=True, timeout=300)
    return folder


def pools(home: Path) -> dict[str, tuple[int, str | None, bool]]:
    """Name → slots, team, include_deferred, as the database has them."""
    import sqlite3

    with sqlite3.connect(home / "airflow.db") as connection:
        rows = connection.execute("select pool, slots, team_name, include_deferred from slot_pool").fetchall()
    return {name: (slots, team, bool(deferred)) for name, slots, team, deferred in rows}


def test_teams_and_pools_follow_the_files(settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An Airflow of somebody else that the shell happens to name is not touched: the state folder has one of its own.
    monkeypatch.setenv("AIRFLOW_HOME", str(home / "somebody-else"))

    said = airflow_tables.sync(settings, home, dry_run=True).changes
    assert set(pools(home)) == {"default_pool"}

    made = airflow_tables.sync(settings, home, dry_run=False).changes
    assert made == said
    assert {change.what for change in made} == {
        *(f"team {name}" for name in ("platform", *settings.tenants)),
        *(f"pool tenant-{name}" for name in settings.tenants),
        *(f"pool {name}" for name in ("platform-steps", "platform-upkeep")),
    }
    assert needs_restart(made)
    found = pools(home)
    assert found["tenant-vision"] == (6, "vision", False)
    assert found["tenant-tabular"] == (4, "tabular", False)
    assert found["platform-steps"] == (airflow_tables.PLATFORM_SLOTS, None, False)
    assert found["platform-upkeep"] == (airflow_tables.UPKEEP_SLOTS, "platform", False)

    assert airflow_tables.sync(settings, home, dry_run=False).changes == []

    more = with_tenants(settings, vision=changed(settings.tenants["vision"], slots=9), tabular=None)
    (change,) = airflow_tables.sync(more, home, dry_run=False).changes
    assert (change.what, change.action, change.detail) == ("pool tenant-vision", "update", "slots 6 → 9")
    assert not needs_restart([change])
    assert pools(home)["tenant-vision"][0] == 9
    assert "tenant-tabular" in pools(home)
    assert not (home / "somebody-else").exists()


def run_of_tabular(home: Path, state: str) -> None:
    """A run of the tenant's, as Airflow keeps it: all columns that must have a value get one."""
    import sqlite3

    given = {
        "dag_bundle": {"name": "tabular", "active": 1},
        "dag": {"dag_id": "train_tabular_x", "bundle_name": "tabular"},
        "dag_run": {"dag_id": "train_tabular_x", "run_id": "manual__1", "state": state, "run_type": "manual"},
    }
    with sqlite3.connect(home / "airflow.db") as connection:
        connection.execute("delete from dag_run")
        for table, row in given.items():
            needed = [name for _, name, _, must, default, key in connection.execute(f"pragma table_info({table})") if must and not key]
            row = dict.fromkeys(needed, 0) | row
            marks = ", ".join("?" for _ in row)
            connection.execute(f"insert or replace into {table} ({', '.join(row)}) values ({marks})", list(row.values()))


def test_a_tenant_drains_and_only_then_may_go(settings: Settings, home: Path) -> None:
    airflow_tables.sync(settings, home, dry_run=False)
    gone = with_tenants(settings, tabular=None)
    draining = with_tenants(settings, tabular=changed(settings.tenants["tabular"], state="draining"))

    run_of_tabular(home, "running")
    for dry_run in (True, False):
        with pytest.raises(RefusedError, match=r"tabular \(1\): put tenants/tabular.yaml back with `state: draining`, `trainyard sync`"):
            airflow_tables.sync(gone, home, dry_run=dry_run)
    assert "tabular" not in airflow_tables.sync(draining, home, dry_run=False).drained
    assert pools(home)["tenant-tabular"][0] == 4, "the run that goes on needs its slots"

    run_of_tabular(home, "success")
    found = airflow_tables.sync(draining, home, dry_run=False)
    assert "tabular" in found.drained
    assert [str(change) for change in found.changes] == ["update pool tenant-tabular: slots 4 → 0"]
    assert airflow_tables.sync(gone, home, dry_run=False).changes == []


def test_a_database_that_is_not_there_is_said_in_one_line(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "airflow.cfg").write_text(
        f"[database]\nsql_alchemy_conn = sqlite:///{tmp_path}/none.db\n[logging]\nbase_log_folder = {tmp_path}\n"
    )
    with pytest.raises(UnavailableError, match=rf"AIRFLOW_HOME={tmp_path}; is it migrated\?") as caught:
        airflow_tables.sync(settings, tmp_path, dry_run=False)
    assert "\n" not in str(caught.value)
