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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainyard.contract.names import PLATFORM_POOL, PLATFORM_TEAM, UPKEEP_POOL, pool
from trainyard.errors import RefusedError, UnavailableError
from trainyard.settings import Settings
from trainyard.upkeep.changes import Change

PLATFORM_SLOTS: Final = 64
"""How many ``check`` and ``clean_up`` tasks may run at once: more than Airflow's own parallelism, they must never wait here."""
UPKEEP_SLOTS: Final = 4
"""Each upkeep Dag runs once at a time, in one task or two."""
TIMEOUT_S: Final = 180
_MARK: Final = "trainyard-changes:"


@dataclass(frozen=True)
class Tables:
    """What a sync of the tables found."""

    changes: list[Change]
    drained: frozenset[str]
    """The draining tenants that have no run left that has not ended."""


def wanted(settings: Settings) -> dict[str, Any]:
    """Teams, pools as ``name → {slots, description, team}``, and the tenants that are draining."""
    pools = {
        pool(name): {"slots": tenant.slots, "description": f"All pods of tenant {name}", "team": name}
        for name, tenant in settings.tenants.items()
    }
    # Of no team: a task whose pool belongs to another team is never run, and these are steps of every tenant.
    pools[PLATFORM_POOL] = {"slots": PLATFORM_SLOTS, "description": "check and clean_up of every tenant", "team": None}
    pools[UPKEEP_POOL] = {"slots": UPKEEP_SLOTS, "description": "The platform's own Dags", "team": PLATFORM_TEAM}
    draining = [name for name, tenant in settings.tenants.items() if tenant.state == "draining"]
    return {"teams": [PLATFORM_TEAM, *settings.tenants], "pools": pools, "draining": draining}


def close_drained(state: dict[str, Any], unfinished: dict[str, int]) -> frozenset[str]:
    """Take the slots of the draining tenants without an unfinished run away, in ``state``; which they are."""
    drained = frozenset(name for name in state["draining"] if not unfinished.get(name))
    for name in drained:
        state["pools"][pool(name)]["slots"] = 0
    return drained


def sync(settings: Settings, airflow_home: Path, *, dry_run: bool) -> Tables:
    """Make teams and pools what the files say.

    Raises:
        RefusedError: a tenant's file is gone while runs of it have not ended; nothing was changed.
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
    found = json.loads(lines[-1])
    if found["refused"]:
        raise RefusedError(found["refused"])
    return Tables([Change(**change) for change in found["changes"]], frozenset(found["drained"]))


def apply(state: dict[str, Any], *, dry_run: bool) -> Tables:
    """In Airflow's own process: bring the tables to ``state``. Teams and pools of tenants that are gone stay: runs refer to them.

    Raises:
        RefusedError: as :func:`sync`.
    """
    from airflow.utils.session import create_session

    with create_session() as session:
        unfinished = _unfinished(session)
        _refuse_vanished(session, state["teams"], unfinished)
        drained = close_drained(state, unfinished)
        changes = [*_teams(session, state["teams"]), *_pools(session, state["pools"])]
        if dry_run:
            session.rollback()
    return Tables(changes, drained)


def _unfinished(session: Any) -> dict[str, int]:
    """Runs that have not ended, by bundle: a tenant's bundle has its name."""
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.state import DagRunState
    from sqlalchemy import func, select

    waiting_or_running = DagRun.state.in_([DagRunState.QUEUED, DagRunState.RUNNING])
    counted = select(DagModel.bundle_name, func.count()).join(DagRun, DagRun.dag_id == DagModel.dag_id).where(waiting_or_running)
    return dict(session.execute(counted.group_by(DagModel.bundle_name)).tuples().all())


def _refuse_vanished(session: Any, teams: list[str], unfinished: dict[str, int]) -> None:
    from airflow.models.team import Team

    gone = sorted((set(Team.get_all_team_names(session=session)) - set(teams)) & set(unfinished))
    if gone:
        runs = ", ".join(f"{name} ({unfinished[name]})" for name in gone)
        raise RefusedError(
            f"tenants whose file is gone have runs that have not ended, and would stop before their teardown: {runs}: put "
            f"tenants/{gone[0]}.yaml back with `state: draining`, `trainyard sync`, and remove it when `trainyard tenants` says drained"
        )


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
    try:
        found = apply(json.load(sys.stdin), dry_run="--dry-run" in sys.argv[1:])
        said: dict[str, Any] = {"changes": [asdict(change) for change in found.changes], "drained": sorted(found.drained), "refused": None}
    except RefusedError as error:
        said = {"refused": str(error)}
    print(_MARK + json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
