"""Airflow's rows about one tenant's slots, read only: its pool, what holds slots of it, what waits, and what was used in a month.

With :mod:`trainyard.api.access` and :mod:`trainyard.api.records` it is all that knows Airflow here.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import func, or_, select

from trainyard.contract import names

HOLDING = (TaskInstanceState.RUNNING, TaskInstanceState.QUEUED)
"""The states in which a task has its slots."""


@dataclass(frozen=True)
class Task:
    """A task that holds slots or waits for them."""

    dag_id: str
    run_id: str
    step: str
    state: str
    slots: int


@dataclass(frozen=True)
class PoolView:
    """A tenant's pool at one moment."""

    slots: int | None
    """None: Airflow has no such pool."""
    tasks: tuple[Task, ...]
    """What holds slots, and what is ``scheduled``: it waits for them."""
    waiting_for_turn: tuple[Task, ...]
    """``check`` of runs that have not begun (trainyard.pipelines.turns)."""
    unfinished_runs: int
    slot_hours: float


def pool(tenant: str, now: datetime) -> PoolView:
    """The tenant's pool at ``now``; the month is that of ``now`` in UTC."""
    first, last = month_of(now)
    with create_session() as session:
        row = session.scalar(select(Pool).where(Pool.pool == names.pool(tenant)))
        columns = TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.state, TaskInstance.pool_slots
        wanted = TaskInstance.state.in_([*HOLDING, TaskInstanceState.SCHEDULED])
        found = session.execute(select(*columns).where(TaskInstance.pool == names.pool(tenant), wanted)).all()
        checks = session.execute(
            select(*columns)
            .join(DagModel, DagModel.dag_id == TaskInstance.dag_id)
            .where(DagModel.bundle_name == tenant, TaskInstance.state == TaskInstanceState.UP_FOR_RESCHEDULE)
        ).all()
        unfinished = session.scalar(
            select(func.count())
            .select_from(DagRun)
            .join(DagModel, DagModel.dag_id == DagRun.dag_id)
            .where(DagModel.bundle_name == tenant, DagRun.state.in_([DagRunState.QUEUED, DagRunState.RUNNING]))
        )
        used = 0.0
        for model in (TaskInstance, TaskInstanceHistory):
            spans = session.execute(
                select(model.start_date, model.end_date, model.pool_slots).where(
                    model.pool == names.pool(tenant),
                    model.start_date < last,
                    or_(model.end_date >= first, model.state.in_(HOLDING) if model is TaskInstance else model.end_date.is_not(None)),
                )
            ).all()
            used += sum(slots * overlap_hours(start, end or now, first, min(last, now)) for start, end, slots in spans if start)
    return PoolView(
        slots=row.slots if row is not None else None,
        tasks=tuple(map(_task, found)),
        waiting_for_turn=tuple(map(_task, checks)),
        unfinished_runs=unfinished or 0,
        slot_hours=round(used, 2),
    )


def month_of(now: datetime) -> tuple[datetime, datetime]:
    """The first moment of the month of ``now``, in UTC, and that of the next."""
    utc = now.astimezone(UTC)
    first = datetime(utc.year, utc.month, 1, tzinfo=UTC)
    days = calendar.monthrange(utc.year, utc.month)[1]
    return first, datetime.fromtimestamp(first.timestamp() + days * 86_400, UTC)


def overlap_hours(start: datetime, end: datetime, first: datetime, last: datetime) -> float:
    """How much of ``start`` to ``end`` lies between ``first`` and ``last``, in hours."""
    return max(0.0, (min(end, last) - max(start, first)).total_seconds()) / 3600


def _task(row: Any) -> Task:
    dag_id, run_id, step, state, slots = row
    return Task(dag_id, run_id, step, str(getattr(state, "value", state)), slots)
