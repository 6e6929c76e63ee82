"""``clean_up``: the run's teardown: nothing of it stays in the cluster, and what was red ends red."""

from __future__ import annotations

import datetime
from typing import Final

from trainyard.contract import names
from trainyard.operators.clean_up_pod import CleanUpPod
from trainyard.settings import Pipeline

STEP = names.STEP_CLEAN_UP
RETRIES: Final = 3
RETRY_DELAY: Final = datetime.timedelta(seconds=5)


def build(pipeline: Pipeline) -> CleanUpPod:
    """The task, in the platform's own pool: it must not wait for slots that the very gang it is to end may hold."""
    return CleanUpPod(
        task_id=STEP,
        tenant=pipeline.tenant,
        pipeline=pipeline.name,
        pool=names.PLATFORM_POOL,
        pool_slots=1,
        retries=RETRIES,
        retry_delay=RETRY_DELAY,
    )
