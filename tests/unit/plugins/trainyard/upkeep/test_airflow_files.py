"""Bundle folders, users, passwords and the settings that name them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.unit.plugins.trainyard.upkeep.conftest import changed, with_tenants
from trainyard.settings import Settings
from trainyard.upkeep.airflow_files import AirflowFiles
from trainyard.upkeep.changes import Change, needs_restart


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    (folder / "platform").mkdir(parents=True)
    (folder / "training_dag.py").write_text("# the training DAGs\n")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "var"


def sync(settings: Settings, state: Path, dags: Path, *, dry_run: bool = False) -> list[Change]:
    return list(AirflowFiles(settings, state, dags).sync(dry_run=dry_run))


def read(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(path.read_text())
    return found


def test_everything_is_made_once(settings: Settings, state: Path, dags: Path) -> None:
    changes = sync(settings, state, dags)
    assert {change.action for change in changes} == {"create"}
    assert needs_restart(changes)
    assert sync(settings, state, dags) == []
    for tenant in ("vision", "tabular"):
        assert (state / "bundles" / tenant / "training_dag.py").read_text() == "# the training DAGs\n"


def test_a_dry_run_says_the_same_and_writes_nothing(settings: Settings, state: Path, dags: Path) -> None:
    said = sync(settings, state, dags, dry_run=True)
    assert not state.exists()
    assert [(c.what, c.action) for c in said] == [(c.what, c.action) for c in sync(settings, state, dags)]


def test_each_tenant_is_a_bundle_of_its_own_team(settings: Settings, state: Path, dags: Path) -> None:
    sync(settings, state, dags)
    environment = read(state / "airflow" / "trainyard.env.json")
    assert environment["AIRFLOW__CORE__MULTI_TEAM"] == "True"
    bundles = json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert [(b["name"], b["team_name"], b["kwargs"]["path"]) for b in bundles] == [
        (tenant, tenant, str(state / "bundles" / tenant)) for tenant in sorted(settings.tenants)
    ]
    # Two bundles that share a parent folder would both have every DAG in it.
    paths = [Path(b["kwargs"]["path"]) for b in bundles]
    assert not any(a != b and a in b.parents for a in paths for b in paths)


def test_the_platform_is_a_bundle_when_it_has_dags(settings: Settings, state: Path, dags: Path) -> None:
    (dags / "platform" / "reap_stray_jobs_dag.py").write_text("")
    sync(settings, state, dags)
    bundles = json.loads(read(state / "airflow" / "trainyard.env.json")["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert (bundles[-1]["name"], bundles[-1]["team_name"], bundles[-1]["kwargs"]["path"]) == (
        "platform",
        "platform",
        str(dags / "platform"),
    )


def test_airflow_reads_what_we_write(settings: Settings, state: Path, dags: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(settings, state, dags)
    for name, value in read(state / "airflow" / "trainyard.env.json").items():
        monkeypatch.setenv(name, value)
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    users = {user.username: (user.role, user.teams) for user in SimpleAuthManager.get_users()}
    people = {login: (role, [name]) for name, tenant in settings.tenants.items() for login, role in tenant.members.items()}
    assert {"alice": ("user", ["vision"]), "carol": ("user", ["tabular"]), "dave": ("viewer", ["tabular"])}.items() <= people.items()
    assert users == {"admin": ("admin", []), "_upkeep": ("op", ["platform", *sorted(settings.tenants)]), **people}
    passwords = SimpleAuthManager.get_passwords()
    assert set(passwords) == {"_upkeep", *people}


def test_a_member_of_two_tenants_is_one_user_of_two_teams(settings: Settings, state: Path, dags: Path) -> None:
    vision = changed(settings.tenants["vision"], members={"carol": "user"})
    users = AirflowFiles(with_tenants(settings, vision=vision), state, dags).users()
    assert users["carol"] == "carol:user:tabular|vision"


def test_passwords_are_random_private_and_kept(settings: Settings, state: Path, dags: Path) -> None:
    path = state / "airflow" / "passwords.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"admin": "made-by-the-starter"}))
    sync(settings, state, dags)
    first = read(path)
    assert first["admin"] == "made-by-the-starter"
    members = {login for tenant in settings.tenants.values() for login in tenant.members}
    assert len(set(first.values())) == len({"admin", "_upkeep"} | members)
    assert all(len(password) >= 16 for login, password in first.items() if login != "admin")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    vision = changed(settings.tenants["vision"], members={"alice": "user", "zoe": "user"})
    changes = sync(with_tenants(settings, vision=vision), state, dags)
    after = read(path)
    assert set(after) == {"admin", "_upkeep", "zoe"} | (members - {"bob"})
    kept = set(after) - {"zoe"}
    assert {login: after[login] for login in kept} == {login: first[login] for login in kept}
    assert {change.what for change in changes} == {"user zoe", "user bob", "Airflow's settings"}
    assert after["zoe"] not in "".join(map(str, changes))


def test_drift_of_a_bundle_is_reported_and_renewed_without_a_restart(settings: Settings, state: Path, dags: Path) -> None:
    sync(settings, state, dags)
    copy = state / "bundles" / "vision" / "training_dag.py"
    copy.write_text("# edited by hand\n")
    (change,) = sync(settings, state, dags)
    assert (change.action, "differed" in change.detail, change.restarts_airflow) == ("update", True, False)
    assert copy.read_text() == "# the training DAGs\n"


def test_a_tenant_that_is_gone_leaves_the_settings_and_keeps_its_folder(settings: Settings, state: Path, dags: Path) -> None:
    sync(settings, state, dags)
    changes = sync(with_tenants(settings, tabular=None), state, dags)
    assert needs_restart(changes)
    assert (state / "bundles" / "tabular" / "training_dag.py").is_file()
    assert "tabular" not in read(state / "airflow" / "trainyard.env.json")["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"]


def test_a_settings_file_that_was_spoilt_is_written_again(settings: Settings, state: Path, dags: Path) -> None:
    sync(settings, state, dags)
    path = state / "airflow" / "trainyard.env.json"
    path.write_text("{half")
    assert [change.what for change in sync(settings, state, dags)] == ["Airflow's settings"]
    assert "AIRFLOW__CORE__MULTI_TEAM" in read(path)


def test_there_is_a_worker_for_every_slot_and_a_changed_tenant_costs_no_restart(settings: Settings, state: Path, dags: Path) -> None:
    sync(settings, state, dags)
    name = "AIRFLOW__CORE__PARALLELISM"
    first = int(read(state / "airflow" / "trainyard.env.json")[name])
    slots = sum(tenant.slots for tenant in settings.tenants.values())
    assert first >= slots + 8
    vision = settings.tenants["vision"]
    for fields in ({"slots": vision.slots + 1}, {"slots": 1}, {"gpus": 2}, {"slot": vision.slot.model_dump() | {"cpu": "1"}}):
        assert sync(with_tenants(settings, vision=changed(vision, **fields)), state, dags) == [], fields
    grown = sync(with_tenants(settings, vision=changed(vision, slots=100)), state, dags)
    assert needs_restart(grown)
    assert int(read(state / "airflow" / "trainyard.env.json")[name]) >= 108
    assert sync(settings, state, dags) == [], "it does not shrink: that would be a restart for nothing"
