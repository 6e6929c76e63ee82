"""Who may ask what: Airflow's own answer, for the DAG that a request names.

A plugin's FastAPI app has no login of its own in Airflow 3.3; these dependencies are the ones that Airflow's REST API uses. They are not
public API of Airflow: nothing else of Trainyard imports them, and ``tests/unit/plugins/trainyard/api/test_real_airflow.py`` runs them in a
real server with two teams.

Airflow lets any logged-in person pass for a DAG that it does not know, or that belongs to no team. So a DAG's id alone is never enough
here: :func:`owner` must name the tenant whose bucket would be read (see :mod:`trainyard.api.deployment`).
"""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails, PoolDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends

Person = Annotated[BaseUser, Depends(get_user)]
"""Who is asking, by Bearer token or by the UI's cookie; 401 for nobody."""

may_read_runs = requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN)
may_read_logs = requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS)
may_read_results = requires_access_dag(method="GET", access_entity=DagAccessEntity.XCOM)
"""Models, metrics and examples: what a run's tasks made."""
may_trigger = requires_access_dag(method="POST", access_entity=DagAccessEntity.RUN)


def may_see(person: BaseUser, dag_id: str, team: str) -> bool:
    """Whether ``person`` could see a DAG of ``team`` that Airflow has not read yet."""
    return get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag_id, team_name=team), user=person)


def may_see_pool(person: BaseUser, pool: str, team: str) -> bool:
    """Whether ``person`` may see the pool of ``team``, and so how it stands with the tenant's slots."""
    return get_auth_manager().is_authorized_pool(method="GET", details=PoolDetails(name=pool, team_name=team), user=person)


def may_edit(person: BaseUser, dag_id: str, team: str | None) -> bool:
    """Whether ``person`` may change what the DAG does, as publishing its code does."""
    return get_auth_manager().is_authorized_dag(method="PUT", details=DagDetails(id=dag_id, team_name=team), user=person)


def name_of(person: BaseUser) -> str:
    return person.get_name()


def readable_dags(person: BaseUser) -> set[str]:
    """The ids of all DAGs that ``person`` may see."""
    return get_auth_manager().get_authorized_dag_ids(user=person, method="GET")


def teams_in_use() -> bool:
    """Whether this Airflow separates teams at all; where it does not, everyone who is logged in sees everything in it too."""
    return conf.getboolean("core", "multi_team", fallback=False)


def owner(dag_id: str) -> str | None:
    """The team that the DAG's bundle belongs to; None for a DAG that is unknown or nobody's."""
    return DagModel.get_team_name(dag_id)
