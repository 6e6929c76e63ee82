"""Airflow's side of the tenants that lies in its database: teams and pools. Run as ``python -m trainyard.upkeep.airflow_tables``.

Teams have no REST API, and the database may be reached only by an administrator's process, never by a task; importing Airflow costs
seconds and its logging. So :func:`sync` starts this module as a child that gets the wanted state as JSON on stdin and says what it
changed as JSON on its last line of stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from trainyard.contract.names import PLATFORM_POOL, PLATFORM_TEAM, UPKEEP_POOL, pool
from trainyard.errors import UnavailableError
from trainyard.settings import Settings
from trainyard.upkeep.changes import Change

PLATFORM_SLOTS: Final = 64
"""How many ``check`` and ``clean_up`` tasks may run at once: more than Airflow's own parallelism, they must never wait here."""
UPKEEP_SLOTS: Final = 4
"""Each upkeep Dag runs once at a time, in one task or two."""
TIMEOUT_S: Final = 180
_MARK: Final = "trainyard-changes:"


def wanted(settings: Settings) -> dict[str, Any]:
    """Teams, and pools as ``name → {slots, description, team}``."""
    pools = {
        pool(name): {"slots": tenant.slots, "description": f"All pods of tenant {name}", "team": name}
        for name, tenant in settings.tenants.items()
    }
    # Of no team: a task whose pool belongs to another team is never run, and these are steps of every tenant.
    pools[PLATFORM_POOL] = {"slots": PLATFORM_SLOTS, "description": "check and clean_up of every tenant", "team": None}
    pools[UPKEEP_POOL] = {"slots": UPKEEP_SLOTS, "description": "The platform's own Dags", "team": PLATFORM_TEAM}
    return {"teams": [PLATFORM_TEAM, *settings.tenants], "pools": pools}


def sync(settings: Settings, airflow_home: Path, *, dry_run: bool) -> list[Change]:
    """Make teams and pools what the files say.

    Raises:
        UnavailableError: the database cannot be reached or has not been made yet, with Airflow's last words.
    """
    environment = {**os.environ, "AIRFLOW__CORE__MULTI_TEAM": "True"}
    # The state folder's own Airflow, where there is one (`trainyard up`); elsewhere the one that this process was started with.
    if (airflow_home / "airflow.cfg").is_file():
        environment["AIRFLOW_HOME"] = str(airflow_home)
    else:
        environment.setdefault("AIRFLOW_HOME", str(airflow_home))
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    command = [sys.executable, "-m", "trainyard.upkeep.airflow_tables", *(["--dry-run"] if dry_run else [])]
    try:
        done = subprocess.run(
            command, input=json.dumps(wanted(settings)), capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"Airflow's database did not answer within {TIMEOUT_S} s (AIRFLOW_HOME={environment['AIRFLOW_HOME']})"
        ) from error
    lines = [line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnavailableError(f"Airflow's database cannot be used (AIRFLOW_HOME={environment['AIRFLOW_HOME']}; is it migrated?): {last}")
    return [Change(**change) for change in json.loads(lines[-1])]


def apply(state: dict[str, Any], *, dry_run: bool) -> list[Change]:
    """In Airflow's own process: bring the tables to ``state``. Teams and pools of tenants that are gone stay: runs refer to them."""
    from airflow.utils.session import create_session

    with create_session() as session:
        changes = [*_teams(session, state["teams"]), *_pools(session, state["pools"])]
        if dry_run:
            session.rollback()
    return changes


def _teams(session: Any, names: list[str]) -> Iterator[Change]:
    from airflow.models.team import Team

    present = Team.get_all_team_names(session=session)
    for name in names:
        if name not in present:
            session.add(Team(name=name))
            session.flush()
            yield Change(f"team {name}", "create", "in Airflow", restarts_airflow=True)


def _pools(session: Any, pools: dict[str, dict[str, Any]]) -> Iterator[Change]:
    from airflow.models.pool import Pool

    for name, want in pools.items():
        present = Pool.get_pool(name, session=session)
        # include_deferred is False: our tasks are not deferrable, so a slot is held exactly as long as the task runs.
        target = {"slots": want["slots"], "description": want["description"], "team_name": want["team"], "include_deferred": False}
        differs = {key: value for key, value in target.items() if present is None or getattr(present, key) != value}
        if not differs:
            continue
        if present is None:
            detail = f"{want['slots']} slots" + (f", team {want['team']}" if want["team"] else ", of no team")
        else:
            detail = ", ".join(f"{key} {getattr(present, key)} → {value}" for key, value in differs.items())
        Pool.create_or_update_pool(name, **target, session=session)
        yield Change(f"pool {name}", "create" if present is None else "update", detail)


def main() -> int:
    changes = apply(json.load(sys.stdin), dry_run="--dry-run" in sys.argv[1:])
    print(_MARK + json.dumps([asdict(change) for change in changes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
