"""### Tenants kept at what their files say

Every few minutes: namespaces, quotas, limits, identities, Secrets, buckets and pools are compared with `config/tenants/*.yaml`, and what
differs is made so. Nothing is ever deleted, and doing it twice changes nothing. The log has a line for each difference.

| | |
|---|---|
| `dry_run` | only say what differs |
| red | the files are not in order, something does not answer, or only an administrator can give what is missing: the log says what |

A new tenant needs `trainyard sync` besides: bundles, teams and people are read by Airflow at its start.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable, Param, task
from airflow.sdk.exceptions import AirflowFailException

from trainyard.upkeep import dag_defaults

with DAG(
    dag_id="reconcile_tenants",
    doc_md=__doc__,
    description="Keeps cluster, S3 and pools at what the tenants' files say",
    schedule=CronTriggerTimetable("4-59/10 * * * *", timezone="UTC", run_immediately=dag_defaults.FIRST_AT),
    params={"dry_run": Param(False, type="boolean", title="Dry run", description="Only say what differs.")},
    **dag_defaults.DAG_ARGUMENTS,
):

    @task
    def reconcile(params: dict[str, bool] | None = None) -> int:
        """One round; how many differences there were."""
        from trainyard.upkeep.reconcile import reconcile

        changes = reconcile(dry_run=bool((params or {}).get("dry_run")), log=print)
        if missing := [str(change) for change in changes if change.action == "missing"]:
            raise AirflowFailException("\n".join(missing))
        return len(changes)

    reconcile()
