"""Run by test_airflow_runs.py in a process of its own: Airflow's own functions on a database of its own; prints one JSON document.

Form runs, backfills and ticks are made here as the API server, the command line and the scheduler make them.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.backfill import ReprocessBehavior, _create_backfill, _do_dry_run
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

UTC = datetime.UTC
YEAR = datetime.datetime(2026, 1, 1, tzinfo=UTC), datetime.datetime(2026, 12, 31, tzinfo=UTC)


def slots(run_id: str) -> dict[str, int]:
    with create_session() as session:
        rows = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run_id)).all()
        return {row.task_id: row.pool_slots for row in rows}


def form_run(dag_id: str, run_id: str, conf: dict[str, Any], key: str | None) -> dict[str, Any]:
    """As ``POST /dags/{id}/dagRuns``."""
    with create_session() as session:
        dag = SerializedDagModel.get(dag_id, session=session).dag
        run = dag.create_dagrun(
            run_id=run_id,
            run_after=datetime.datetime.now(UTC),
            conf=conf,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.REST_API,
            state=DagRunState.QUEUED,
            partition_key=key,
            partition_date=dag.timetable.resolve_partition_date(key),
            session=session,
        )
        session.flush()
        # What the scheduler does with a run on its way, again and again.
        run.dag = dag
        run.verify_integrity(session=session, dag_version_id=run.task_instances[0].dag_version_id)
    return {"slots": slots(run_id)}


def backfill(dag_id: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"dag_id": dag_id, "from_date": YEAR[0], "to_date": YEAR[1], "reverse": False}
    with create_session() as session:
        planned = list(_do_dry_run(**arguments, reprocess_behavior=ReprocessBehavior.NONE, session=session))
    keys = [getattr(info, "partition_key", None) or info[1] for info in planned]
    _create_backfill(
        **arguments, max_active_runs=1, dag_run_conf={"epochs": 1}, triggering_user_name="alice", reprocess_behavior=ReprocessBehavior.NONE
    )
    with create_session() as session:
        made = session.scalars(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_type == "backfill")).all()
        found = sorted((run.partition_key, run.partition_date.isoformat(), run.conf) for run in made)
        again = list(_do_dry_run(**arguments, reprocess_behavior=ReprocessBehavior.NONE, session=session))
    return {"planned": keys, "made": found, "planned_again": len(again)}


def tick(dag_id: str) -> dict[str, Any]:
    """As the scheduler: the tick that is due becomes a run, and the next one is worked out."""
    with create_session() as session:
        model = session.get(DagModel, dag_id)
        before = model.next_dagrun_create_after, model.next_dagrun_partition_key
        runner = SchedulerJobRunner(job=Job())
        runner._create_dag_runs([model], session)
        session.flush()
        made = session.scalars(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_type == "scheduled")).all()
        return {
            "due": before[0].isoformat(),
            "key": before[1],
            "made": [(run.partition_key, run.run_after.isoformat()) for run in made],
            "next": model.next_dagrun_create_after.isoformat(),
        }


def main() -> None:
    folder = sys.argv[1]
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(folder, bundle_name="vision")
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, "vision", None)
    ticking, asked = "train_vision_ticking", "train_vision_digits-mlp"
    with create_session() as session:
        document: dict[str, Any] = {"on_request": str(session.get(DagModel, asked).next_dagrun_create_after)}
    document["plain"] = form_run(asked, "manual__1", {}, "1.0.0")
    document["smaller"] = form_run("train_vision_mnist-cnn", "manual__2", {"workers": 1, "parameter_servers": 1}, None)
    document["wrong"] = {}
    for name, conf, key in (("workers", {"workers": 0}, None), ("version", {}, "9.9.9")):
        try:
            form_run(asked, f"manual__{name}", conf, key)
        except Exception as error:
            document["wrong"][name] = f"{type(error).__name__}: {error}"
    document["backfill"] = backfill(asked)
    document["tick"] = tick(ticking)
    print("RESULT " + json.dumps(document))


main()
