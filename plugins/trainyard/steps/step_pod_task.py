"""What the tasks of all pod steps have in common."""

from __future__ import annotations

import datetime
from typing import Any, Final

from trainyard.contract import names
from trainyard.settings import Pipeline

RETRIES: Final = 2
RETRY_DELAY: Final = datetime.timedelta(seconds=5)


def arguments(pipeline: Pipeline, step: str) -> dict[str, Any]:
    """Arguments of every :class:`trainyard.operators.step_pod.StepPod`: its tenant's pool and the slots of its one pod."""
    return {
        "task_id": step,
        "tenant": pipeline.tenant,
        "pipeline": pipeline.name,
        "step": step,
        "pool": names.pool(pipeline.tenant),
        "pool_slots": pipeline.step_slots,
        "retries": RETRIES,
        "retry_delay": RETRY_DELAY,
    }
