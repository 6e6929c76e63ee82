"""``train``: the gang, as one task that takes the slots of all its pods from the tenant's pool at once, or waits for them."""

from __future__ import annotations

import datetime
from typing import Final

from trainyard.contract import names
from trainyard.operators.training_gang import TrainingGang
from trainyard.settings import Pipeline

STEP = "train"
RETRIES: Final = 5
"""A try that was lost with its Airflow costs no training: the next adopts the gang. A lost gang goes on from its checkpoint."""
RETRY_DELAY: Final = datetime.timedelta(seconds=1)
"""Near nothing: a task that waits for its retry has given back its slots while its gang may still live."""


def build(pipeline: Pipeline) -> TrainingGang:
    """The task, with the pipeline's own gang; a form that asks for another changes ``pool_slots`` by the policy hook."""
    return TrainingGang(
        task_id=STEP,
        tenant=pipeline.tenant,
        pipeline=pipeline.name,
        gang_shape=pipeline.gang.model_dump(),
        pool=names.pool(pipeline.tenant),
        pool_slots=pipeline.gang.slots,
        retries=RETRIES,
        retry_delay=RETRY_DELAY,
    )
