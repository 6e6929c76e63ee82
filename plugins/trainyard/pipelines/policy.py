"""Airflow's cluster policy of Trainyard: a gang whose shape comes from the form takes that many pool slots.

Loaded by the ``airflow.policy`` entry point into every Airflow process, so it imports nothing heavy. ``pool_slots`` is not templated in
Airflow, and the hook runs inside the scheduler's transaction: it asks neither the database nor the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow import settings as airflow_settings
from airflow.policies import hookimpl

from trainyard.pipelines.form import gang_of

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance


@hookimpl
def task_instance_mutation_hook(task_instance: TaskInstance, dag_run: DagRun | None) -> None:
    """Set the slots of a gang's task by the run's conf."""
    shape: Any = getattr(getattr(task_instance, "task", None), "gang_shape", None)
    if not isinstance(shape, Mapping):
        return
    # Airflow applies the hook again without the run at hand; the relationship may be loaded, and loading it here would be a query.
    run = dag_run or task_instance.__dict__.get("dag_run")
    if run is None:
        return
    task_instance.pool_slots = gang_of(shape, run.conf)


# Airflow 3.3.2 asks the hook only where this is False, and clears it for an airflow_local_settings.py but not for an entry point:
# task instances would then be made in bulk with the slots of the serialized DAG (measured; tests/dags/test_airflow_runs.py).
airflow_settings.task_instance_mutation_hook.is_noop = False  # type: ignore[attr-defined]
