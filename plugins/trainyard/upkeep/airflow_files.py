"""Airflow's side of the tenants that lies in files: bundle folders, users and their passwords, and the settings that name them.

A Dag file cannot ask which bundle it is in, so each tenant's bundle is a folder named after it that holds a copy of
``dags/training_dag.py``; a copy that differs is drift, reported and renewed. All of it is read by Airflow's processes at their start,
but for the Dag file itself. Users are for the SimpleAuthManager (one machine); elsewhere the company's own auth manager has them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trainyard.contract.names import PLATFORM_TEAM, UPKEEP_LOGIN
from trainyard.settings import Settings
from trainyard.upkeep.changes import Change
from trainyard.upkeep.files import read_text, write_private

ADMIN: Final = "admin"
"""The administrator's login; its password is made by whoever starts Airflow."""
CHECKOUT_DAGS: Final = Path(__file__).resolve().parents[3] / "dags"
TRAINING_DAG: Final = "training_dag.py"
_LOCAL_BUNDLE: Final = "airflow.dag_processing.bundles.local.LocalDagBundle"
_PASSWORD_BYTES: Final = 12
PARALLELISM: Final = "AIRFLOW__CORE__PARALLELISM"
PARALLELISM_STEP: Final = 16
"""It is read at a restart only, so it grows in steps: a tenant that gets a slot more shall not cost one."""
PLATFORMS_WORKERS: Final = 8
"""Workers beside those that tenants' slots may hold: for check, clean_up and upkeep."""


class AirflowFiles:
    """The files of one state folder (``var/``)."""

    def __init__(self, settings: Settings, state_dir: Path, dags: Path = CHECKOUT_DAGS) -> None:
        self._settings = settings
        self._state = state_dir
        self._dags = dags

    @property
    def environment_file(self) -> Path:
        """``AIRFLOW__…`` names and values, which whoever starts Airflow merges into its settings."""
        return self._state / "airflow" / "trainyard.env.json"

    @property
    def passwords_file(self) -> Path:
        """Login → password, as the SimpleAuthManager reads it."""
        return self._state / "airflow" / "passwords.json"

    def bundle_folder(self, tenant: str) -> Path:
        return self._state / "bundles" / tenant

    # ------------------------------------------------------------------------------------------------------------ desired
    def bundles(self) -> list[dict[str, Any]]:
        """Airflow's ``dag_bundle_config_list``: one bundle a tenant, and the platform's own if it has Dags."""
        found = [self._bundle(tenant, self.bundle_folder(tenant)) for tenant in self._settings.tenants]
        platform = self._dags / "platform"
        if any(platform.glob("*_dag.py")):
            found.append(self._bundle(PLATFORM_TEAM, platform))
        return found

    @staticmethod
    def _bundle(team: str, folder: Path) -> dict[str, Any]:
        return {"name": team, "classpath": _LOCAL_BUNDLE, "kwargs": {"path": str(folder)}, "team_name": team}

    def users(self) -> dict[str, str]:
        """Login → ``login:role[:team|team…]``."""
        teams: dict[str, list[str]] = {}
        roles: dict[str, str] = {}
        for name, tenant in self._settings.tenants.items():
            for member, role in tenant.members.items():
                teams.setdefault(member, []).append(name)
                roles[member] = role
        users = {member: f"{member}:{roles[member]}:{'|'.join(sorted(teams[member]))}" for member in sorted(teams)}
        # `op` is the least that may set a pool; in every team, since it must see every run.
        upkeep = f"{UPKEEP_LOGIN}:op:{'|'.join([PLATFORM_TEAM, *sorted(self._settings.tenants)])}"
        return {ADMIN: f"{ADMIN}:admin", UPKEEP_LOGIN: upkeep} | users

    def environment(self) -> dict[str, str]:
        """What :attr:`environment_file` must say."""
        return {
            "AIRFLOW__CORE__MULTI_TEAM": "True",
            PARALLELISM: str(self._parallelism()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(self.users().values()),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(self.bundles()),
        }

    def _parallelism(self) -> int:
        """As many workers as there can be tasks with slots, and the platform's own: no tenant's load keeps anybody else's task waiting."""
        needed = sum(tenant.slots for tenant in self._settings.tenants.values()) + PLATFORMS_WORKERS
        steps = -(-needed // PARALLELISM_STEP) * PARALLELISM_STEP
        present = self._json(self.environment_file).get(PARALLELISM, "0")
        return max(steps, int(present) if present.isdecimal() else 0)

    # --------------------------------------------------------------------------------------------------------------- sync
    def sync(self, *, dry_run: bool) -> Iterator[Change]:
        """Bring the files up to date. Bundles of tenants that are gone keep their folders and lose their place in the settings."""
        yield from self._sync_bundles(dry_run)
        yield from self._sync_passwords(dry_run)
        yield from self._sync_environment(dry_run)

    def _sync_bundles(self, dry_run: bool) -> Iterator[Change]:
        source = (self._dags / TRAINING_DAG).read_text(encoding="utf-8")
        for tenant in self._settings.tenants:
            path = self.bundle_folder(tenant) / TRAINING_DAG
            present = read_text(path)
            if present == source:
                continue
            what = "differed from dags/training_dag.py and is renewed" if present is not None else "a copy of dags/training_dag.py"
            if not dry_run:
                write_private(path, source)
            yield Change(f"bundle file {tenant}/{TRAINING_DAG}", "create" if present is None else "update", what)

    def _sync_passwords(self, dry_run: bool) -> Iterator[Change]:
        present = self._json(self.passwords_file)
        members = [login for login in self.users() if login != ADMIN]
        wanted = {login: present[login] for login in (ADMIN, *members) if login in present}
        for login in members:
            if login not in wanted:
                wanted[login] = secrets.token_urlsafe(_PASSWORD_BYTES)
                yield Change(
                    f"user {login}", "create", f"{self.users()[login]}, password in {self.passwords_file.name}", restarts_airflow=True
                )
        for login in sorted(set(present) - set(wanted)):
            yield Change(f"user {login}", "update", "is in no tenant any more: password removed", restarts_airflow=True)
        if wanted != present and not dry_run:
            write_private(self.passwords_file, json.dumps(wanted, indent=2) + "\n")

    def _sync_environment(self, dry_run: bool) -> Iterator[Change]:
        present, wanted = self._json(self.environment_file), self.environment()
        if present == wanted:
            return
        names = sorted(name for name in {*present, *wanted} if present.get(name) != wanted.get(name))
        short = ", ".join(name.removeprefix("AIRFLOW__").replace("__", ".").lower() for name in names)
        if not dry_run:
            write_private(self.environment_file, json.dumps(wanted, indent=2, sort_keys=True) + "\n")
        yield Change("Airflow's settings", "update" if present else "create", short, restarts_airflow=True)

    @staticmethod
    def _json(path: Path) -> dict[str, str]:
        text = read_text(path)
        try:
            value = json.loads(text) if text else {}
        except ValueError:
            value = {}
        return value if isinstance(value, dict) else {}
