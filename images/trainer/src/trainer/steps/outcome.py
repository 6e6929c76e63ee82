"""The run's end as people see it: ``runs/<run>/result.json``, and the names of the outcomes that the trainer may write.

``unchanged`` is written by ``check``, ``failed`` and ``cancelled`` by ``clean_up``, both on the orchestration side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trainer.steps.context import Context
from trainer.storage import keys, markers

EXPORTED: Final = "exported"
REJECTED: Final = "rejected"


def write(
    context: Context, outcome: str, reason: str, metrics: Mapping[str, Any], *, model: str | None = None, model_version: int | None = None
) -> None:
    """Writes the run's result; a repeated step writes the same again."""
    context.data.put_json(
        keys.run_result(context.spec.run),
        {
            "version": 1,
            "outcome": outcome,
            "reason": reason,
            "metrics": dict(metrics),
            "model": model,
            "model_version": model_version,
            "dataset_version": context.spec.dataset.version,
            "ended": markers.now(),
        },
    )
