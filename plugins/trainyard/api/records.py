"""Airflow's rows about our runs, read only, as plain dicts.

It reads through Airflow's models, since its REST API would be a call to the very server we are in, once a run. Beside
:mod:`trainyard.api.access` it is the only module here that knows Airflow.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

STEP_ORDER = ("check", "prepare", "shard", "plan", "train", "evaluate", "gate", "export", "clean_up")
"""Steps as they follow each other; Airflow keeps task instances in no order."""


def dags(dag_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Of each DAG that Airflow has at present: whether it is paused."""
    with create_session() as session:
        rows = session.execute(
            select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_(dag_ids), DagModel.is_stale.is_(False))
        ).all()
    return {dag_id: {"paused": bool(paused)} for dag_id, paused in rows}


def latest_runs(dag_ids: Collection[str], limit: int) -> list[dict[str, Any]]:
    """The newest runs of some DAGs, the newest first."""
    with create_session() as session:
        rows = session.scalars(select(DagRun).where(DagRun.dag_id.in_(dag_ids)).order_by(DagRun.id.desc()).limit(limit)).all()
        return [_run(row) for row in rows]


def run(dag_id: str, run_id: str) -> dict[str, Any] | None:
    with create_session() as session:
        row = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
        return _run(row) if row is not None else None


def run_ids(dag_id: str) -> list[str]:
    """All runs of a DAG, the newest first."""
    with create_session() as session:
        return list(session.scalars(select(DagRun.run_id).where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc())))


def runs_named(run_id: str, dag_ids: Collection[str]) -> list[str]:
    """The DAGs that have a run of this id."""
    with create_session() as session:
        return list(session.scalars(select(DagRun.dag_id).where(DagRun.run_id == run_id, DagRun.dag_id.in_(dag_ids))))


def steps(dag_id: str, run_id: str) -> list[dict[str, Any]]:
    """The task instances of a run, in the order of the pipeline."""
    with create_session() as session:
        rows = session.execute(
            select(
                TaskInstance.task_id,
                TaskInstance.map_index,
                TaskInstance.state,
                TaskInstance.try_number,
                TaskInstance.start_date,
                TaskInstance.end_date,
            ).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        ).all()
    known = [
        {
            "step": task_id,
            "index": map_index if map_index >= 0 else None,
            "state": state,
            "try": try_number,
            "start": _text(start),
            "end": _text(end),
        }
        for task_id, map_index, state, try_number, start, end in rows
    ]
    return sorted(known, key=lambda row: (_place(row["step"]), row["step"], row["index"] or 0))


def _place(step: str) -> int:
    return STEP_ORDER.index(step) if step in STEP_ORDER else len(STEP_ORDER)


def _run(row: DagRun) -> dict[str, Any]:
    end = row.end_date or (datetime.now(UTC) if row.start_date else None)
    return {
        "dag_id": row.dag_id,
        "run_id": row.run_id,
        "state": str(row.state),
        "run_type": str(row.run_type),
        "requested_by": row.triggering_user_name,
        "partition_key": row.partition_key,
        "note": row.note,
        "queued": _text(row.queued_at),
        "start": _text(row.start_date),
        "end": _text(row.end_date),
        "seconds": round((end - row.start_date).total_seconds(), 1) if end and row.start_date else None,
    }


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
