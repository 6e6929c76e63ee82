"""A run's outcome as its note in Airflow, where people look at a list of runs.

Airflow gives tasks no way to write a note, so the teardown leaves the words as an XCom, and this listener copies them when the scheduler
ends the run. It works in the scheduler's own transaction: one query, nothing outside the database, and no commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow.listeners import hookimpl
from sqlalchemy import inspect, select

from trainyard.contract import names

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

MARK: Final = "outcome: "
"""How a note of ours begins. A person's own note is never overwritten, and who cancelled a run says its outcome already."""


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Write the note of a run that ended well."""
    write(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Write the note of a run that failed or was ended by a person."""
    write(dag_run)


def write(dag_run: DagRun) -> None:
    """Give the run the note that its teardown left, unless a person has written one."""
    before = dag_run.note or ""
    if not dag_run.dag_id.startswith(names.DAG_PREFIX) or (before and not before.startswith((MARK, names.NOTE_RETRIED))):
        return
    from airflow.models.xcom import XComModel  # imports the database: not for processes that only load the plugin

    session: Session | None = inspect(dag_run).session
    found = session and session.scalar(
        select(XComModel.value).where(
            XComModel.dag_run_id == dag_run.id, XComModel.task_id == names.STEP_CLEAN_UP, XComModel.key == names.XCOM_NOTE
        )
    )
    if isinstance(found, str):  # as the Task Execution API stored it
        retried = f" ({before})" if before.startswith(names.NOTE_RETRIED) else ""
        dag_run.note = f"{MARK}{found[: names.NOTE_LENGTH - len(MARK) - len(retried)]}{retried}"
