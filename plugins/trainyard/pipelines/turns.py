"""No new run of a tenant begins while a gang of the tenant waits for slots: so a large gang is not starved by a stream of small tasks.

Airflow knows no reservation and no first-in-first-out: its scheduler goes down the waiting tasks by priority, passes over one that asks
for more slots than are free, and hands these to the next that fits (scheduler_job_runner, "we can execute tasks with lower priority if
there's enough room"). As long as small tasks keep coming, all slots of the pool are never free at once. Runs that have begun make a
finite number of tasks; so when none begins, they end, and the gang starts (docs/adr/0015).

A run that waits here is ``up_for_reschedule``: it holds neither a slot nor a worker.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Final

from trainyard.contract import names
from trainyard.settings import Settings
from trainyard.settings.checks import gang_fits

SECOND_LOOK_S: Final = 5.0
"""Every gang waits for a moment: as long as the scheduler needs for one round."""
AT_MOST: Final = datetime.timedelta(hours=6)
"""A run waits no longer than this: the gang may be one that nobody lets go on, as of a pipeline that is paused."""

Count = Callable[[str], int]
"""The DAG's gangs that wait for slots: tasks ``train`` in the state ``scheduled``."""


def gangs_that_wait(settings: Settings, tenant: str, count: Count, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Which gangs of the tenant wait for slots, in words; None if none does, or none for longer than a moment.

    Gangs that the tenant's slots do not suffice for any more are not waited for: they cannot start.
    """
    owner = settings.tenants[tenant]
    dags = {names.dag_id(tenant, p.name): p for p in settings.pipelines_of(tenant) if gang_fits(p.gang, owner) is None}
    waiting = [dag_id for dag_id in dags if count(dag_id)]
    if not waiting:
        return None
    sleep(SECOND_LOOK_S)
    still = [dag_id for dag_id in waiting if count(dag_id)]
    if not still:
        return None
    gangs = ", ".join(f"{dag_id} ({dags[dag_id].gang.slots} of {owner.slots} slots)" for dag_id in still)
    return f"a gang of tenant {tenant} waits for slots, and goes first: {gangs}"
