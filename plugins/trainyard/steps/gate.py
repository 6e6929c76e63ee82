"""``gate``: says whether the model may be exported; a no is a normal end. It runs no user code, so it may have the export identity."""

from __future__ import annotations

from trainyard.contract import names
from trainyard.operators.step_pod import StepPod
from trainyard.settings import Pipeline
from trainyard.steps.step_pod_task import arguments

STEP = "gate"


def build(pipeline: Pipeline) -> StepPod:
    """The task."""
    return StepPod(**arguments(pipeline, STEP), secret=names.SECRET_EXPORT)
