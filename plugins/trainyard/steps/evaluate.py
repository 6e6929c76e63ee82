"""``evaluate``: scores the last checkpoint on the evaluation split and writes it as a SavedModel."""

from __future__ import annotations

from trainyard.operators.step_pod import StepPod
from trainyard.settings import Pipeline
from trainyard.steps.step_pod_task import arguments

STEP = "evaluate"


def build(pipeline: Pipeline) -> StepPod:
    """The task."""
    return StepPod(**arguments(pipeline, STEP))
