"""``plan``: checks that every shard is there and deals them out to the workers, balanced by examples."""

from __future__ import annotations

from trainyard.operators.step_pod import StepPod
from trainyard.settings import Pipeline
from trainyard.steps.step_pod_task import arguments

STEP = "plan"


def build(pipeline: Pipeline) -> StepPod:
    """The task."""
    return StepPod(**arguments(pipeline, STEP))
