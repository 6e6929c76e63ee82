"""### Strays removed

Every few minutes: whatever is in a tenant's namespace of a run that Airflow has ended or does not know goes, after a grace time, its logs
saved first; incomplete uploads too. The last of the four nets against left-over parameter servers: it needs no callback and no memory. A
round that failed or was killed is followed by the next.

| | |
|---|---|
| `dry_run` | only say what would go |
| red | Airflow or the cluster did not answer in full, and nothing was deleted; or something could not be removed: the log says what |
"""

from __future__ import annotations

import datetime

from airflow.sdk import DAG, CronTriggerTimetable, Param

from trainyard.contract import names
from trainyard.upkeep import dag_defaults
from trainyard.upkeep.reaping.reap_pod import DRY_RUN, ReapPod

with DAG(
    dag_id="reap_stray_jobs",
    doc_md=__doc__,
    description="Removes what no run of Airflow owns any more",
    schedule=CronTriggerTimetable("1-59/5 * * * *", timezone="UTC", run_immediately=dag_defaults.FIRST_AT),
    params={DRY_RUN: Param(False, type="boolean", title="Dry run", description="Only say what would go.")},
    **dag_defaults.DAG_ARGUMENTS,
):
    # One more try: the first round begins with Airflow, whose API may not answer yet.
    ReapPod(task_id=names.STEP_REAP, retries=1, retry_delay=datetime.timedelta(seconds=30))
