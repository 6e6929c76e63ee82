"""``export``: copies the accepted model into the models bucket, files first, marker last, then the champion pointer. No user code."""

from __future__ import annotations

from trainyard.contract import names
from trainyard.operators.step_pod import StepPod
from trainyard.settings import Pipeline
from trainyard.steps.step_pod_task import arguments

STEP = "export"


def build(pipeline: Pipeline) -> StepPod:
    """The task."""
    return StepPod(**arguments(pipeline, STEP), secret=names.SECRET_EXPORT)
