"""What the platform's own Dags have in common. Pure: Airflow is imported by the Dag files."""

from __future__ import annotations

import datetime
from typing import Any, Final

from trainyard.contract import names

PRIORITY: Final = 2_000_000
"""Before every task of a tenant, where several wait for a worker (trainyard.pipelines.priority)."""

FIRST_AT: Final = datetime.timedelta(0)
"""``run_immediately`` of their timetables: the first round is the next tick, not one that is past. At its start Airflow has enough to do:
with SQLite three rounds at once have kept a person's first run out ("database is locked"). For the same reason their minutes differ."""

DAG_ARGUMENTS: Final[dict[str, Any]] = {
    "catchup": False,
    # Two rounds at once would do the same work twice.
    "max_active_runs": 1,
    "tags": {"trainyard", names.PLATFORM_TEAM},
    "default_args": {
        "owner": names.PLATFORM_TEAM,
        "pool": names.UPKEEP_POOL,
        "priority_weight": PRIORITY,
        "weight_rule": "absolute",
        # An API server that has just started is slow to answer a task's first call (seen: 10 s): no reason for a red run.
        "retries": 2,
        "retry_delay": datetime.timedelta(seconds=20),
        "execution_timeout": datetime.timedelta(minutes=10),
    },
}
