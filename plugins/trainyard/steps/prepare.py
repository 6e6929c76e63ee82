"""``prepare``: the dataset's builder makes the version's examples, once for all runs of the tenant."""

from __future__ import annotations

from trainyard.operators.step_pod import StepPod
from trainyard.settings import Pipeline
from trainyard.steps.step_pod_task import arguments

STEP = "prepare"


def build(pipeline: Pipeline) -> StepPod:
    """The task."""
    return StepPod(**arguments(pipeline, STEP))
