"""``shard``: cuts the prepared examples into files, one task of a mapped step for each of the dataset's ``shard_tasks``."""

from __future__ import annotations

from typing import Any

from trainyard.operators.step_pod import StepPod
from trainyard.settings import Dataset, Pipeline
from trainyard.steps.step_pod_task import arguments

STEP = "shard"


def build(pipeline: Pipeline, dataset: Dataset) -> Any:
    """The mapped task. Its number is the dataset's, so it is known at parse: nothing is mapped over what another task returns."""
    return StepPod.partial(**arguments(pipeline, STEP)).expand(index=list(range(dataset.shard_tasks)))
