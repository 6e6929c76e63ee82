"""Pools kept at what the files say while Airflow runs: through its REST API, as a task may. Teams it cannot make: `trainyard sync` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from trainyard.contract.names import DAG_PREFIX
from trainyard.settings import Settings
from trainyard.upkeep.airflow_rest import AirflowRest
from trainyard.upkeep.airflow_tables import Tables, close_drained, wanted
from trainyard.upkeep.changes import Change


def unfinished(airflow: AirflowRest) -> dict[str, int]:
    """Runs that have not ended, by tenant.

    Raises:
        UnavailableError, RefusedError: of Airflow.
    """
    runs = airflow.everything("/dags/~/dagRuns", "dag_runs", state=["queued", "running"])
    # train_<tenant>_<pipeline>: no tenant's name holds an underscore.
    return dict(Counter(run["dag_id"].split("_")[1] for run in runs if run["dag_id"].startswith(DAG_PREFIX)))


def sync(settings: Settings, airflow: AirflowRest, *, dry_run: bool) -> Tables:
    """Slots of pools that exist. Pools of tenants that are gone stay: runs refer to them.

    Raises:
        UnavailableError, RefusedError: of Airflow.
    """
    state = wanted(settings)
    drained = close_drained(state, unfinished(airflow) if state["draining"] else {})
    return Tables(list(_pools(state["pools"], airflow, dry_run)), drained)


def _pools(pools: dict[str, Any], airflow: AirflowRest, dry_run: bool) -> Iterator[Change]:
    present = {pool["name"]: pool for pool in airflow.everything("/pools", "pools")}
    for name, want in pools.items():
        found = present.get(name)
        if found is None:
            yield Change(f"pool {name}", "missing", "a new tenant is Airflow's at its start: `trainyard sync` makes it", True)
            continue
        target = {"slots": want["slots"], "include_deferred": False}
        differs = {key: value for key, value in target.items() if found[key] != value}
        if found["team_name"] != want["team"]:
            # Not set from here: who could move a pool between teams could take one.
            yield Change(f"pool {name}", "missing", f"it is of team {found['team_name']}, not {want['team']}: `trainyard sync`")
        if differs:
            if not dry_run:
                # Airflow wants all of a pool's fields in the body, also those that the mask leaves alone.
                airflow.patch(f"/pools/{name}", {"pool": name, **target}, sorted(differs))
            yield Change(f"pool {name}", "update", ", ".join(f"{key} {found[key]} → {value}" for key, value in differs.items()))
