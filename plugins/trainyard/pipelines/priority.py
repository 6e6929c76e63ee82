"""Who goes first where several tasks wait: Airflow's priority weights, absolute, the highest first (docs/adr/0015).

In this order: the platform's own Dags, ``clean_up`` and ``check``; then the tenant's ``priority``, which only counts where tenants wait
for the same worker process; then the pipeline's ``priority``; then a gang before any step, and the larger gang first, since it is the one
that a smaller one would keep out. What keeps a large gang from waiting for ever is not this but :mod:`trainyard.pipelines.turns`: Airflow
passes over a task that does not fit, and gives its free slots to the next that does.
"""

from __future__ import annotations

from typing import Final

from trainyard.settings import Pipeline, Tenant

LEVEL: Final = 20_000
"""More than the slots of any gang: a tenant has at most 10,000."""
CHECK: Final = 1_996_000
CLEAN_UP: Final = 1_998_000
"""Ends what runs before anything else starts. Both are above 99 levels and below the platform's own (upkeep.dag_defaults)."""


def of_step(tenant: Tenant, pipeline: Pipeline) -> int:
    """The weight of a pipeline's steps."""
    return (10 * tenant.priority + pipeline.priority) * LEVEL


def of_gang(tenant: Tenant, pipeline: Pipeline) -> int:
    """The weight of a pipeline's gang, by the size in its file."""
    return of_step(tenant, pipeline) + pipeline.gang.slots
