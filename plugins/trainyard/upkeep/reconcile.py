"""What ``dags/platform/reconcile_tenants_dag.py`` does: cluster, S3 and pools kept at what the tenants' files say.

As :mod:`trainyard.upkeep.sync`, but for what only a restart of Airflow takes up (bundles, teams, people): that stays an administrator's
command, and is named here as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainyard.settings import load
from trainyard.upkeep import airflow_pools
from trainyard.upkeep.airflow_rest import AirflowRest, find_login
from trainyard.upkeep.changes import Change
from trainyard.upkeep.sync import sync_cluster


def reconcile(*, dry_run: bool, log: Callable[[str], None]) -> list[Change]:
    """One round; each difference is a line, made so unless ``dry_run``.

    Raises:
        ConfigError: the files are not in order: nothing is touched.
        UnavailableError, RefusedError: of Airflow, the cluster or S3; what came before it is done.
    """
    settings = load()
    with AirflowRest(find_login()) as airflow:
        pools = airflow_pools.sync(settings, airflow, dry_run=dry_run)
    changes = [*pools.changes, *sync_cluster(settings, dry_run, pools.drained)]
    for line in report(changes, dry_run=dry_run):
        log(line)
    return changes


def report(changes: Iterable[Change], *, dry_run: bool) -> list[str]:
    """The differences as a person would want to read them: what only the administrator can give comes last."""
    found = sorted(changes, key=lambda change: change.action == "missing")
    if not found:
        return ["nothing differs from the tenants' files"]
    return [f"would {change}" if dry_run and change.action != "missing" else str(change) for change in found]
