"""### What tenants' files say is kept, and no more

Once a day: folders of runs older than `retention.runs_days`, and model versions beyond the newest `retention.model_versions` of each
model, go from S3. A run's `result.json` and every champion stay. Where a tenant's file gives no number, nothing goes. A round that was
killed is finished by the next.

| | |
|---|---|
| `dry_run` | only say what would go |
| red | S3 refused or did not answer: the log says what |
"""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable, Param, task

from trainyard.upkeep import dag_defaults

with DAG(
    dag_id="apply_retention",
    doc_md=__doc__,
    description="Removes old runs' folders and old model versions from S3",
    schedule=CronTriggerTimetable("17 3 * * *", timezone="UTC", run_immediately=dag_defaults.FIRST_AT),
    params={"dry_run": Param(False, type="boolean", title="Dry run", description="Only say what would go.")},
    **dag_defaults.DAG_ARGUMENTS,
):

    @task
    def apply_retention(params: dict[str, bool] | None = None) -> int:
        """One round; how many folders went."""
        import datetime

        from trainyard.settings import load
        from trainyard.upkeep import retention

        return retention.apply(load(), dry_run=bool((params or {}).get("dry_run")), now=datetime.datetime.now(datetime.UTC))

    apply_retention()
