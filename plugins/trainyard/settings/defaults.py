"""The ``defaults`` section of a tenant's file: what its pipelines' files need not repeat.

Types, limits and descriptions are those of :mod:`trainyard.settings.pipelines`; here stands only which keys may have a default. Those may
not that say what a pipeline *is* (its tenant, data, model and name), how long it trains (exactly one of two keys), and the gate's minimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, Field, create_model

from trainyard.settings import pipelines
from trainyard.settings.base import Section

TRAINING: Final = ("mode", "batch_size", "learning_rate", "optimizer", "checkpoint_every_steps", "start_deadline_s", "deadline_s")
GANG: Final = ("workers", "parameter_servers", "chief_slots", "ps_slots", "worker_slots", "worker_gpus")
GATE: Final = ("metric", "beat_champion", "on_reject")
TOP: Final = ("image", "step_slots", "evaluation_batch_size", "priority", "schedule", "retrain")


def _optional(model: type[BaseModel], names: tuple[str, ...]) -> dict[str, Any]:
    """Fields of ``model``, none of which need be given."""
    found: dict[str, Any] = {}
    for name in names:
        field = model.model_fields[name]
        kind: Any = field.annotation
        for limit in field.metadata:
            kind = Annotated[kind, limit]
        found[name] = (kind | None, Field(default=None, description=field.description))
    return found


def _part(model: type[BaseModel], names: tuple[str, ...]) -> Any:
    return create_model(f"{model.__name__}Defaults", __base__=Section, __doc__=model.__doc__, **_optional(model, names))


_PARTS: Final = {
    "training": (_part(pipelines.Training, TRAINING), "How its pipelines are trained."),
    "gang": (_part(pipelines.Gang, GANG), "The processes of one training."),
    "gate": (_part(pipelines.Gate, GATE), "What a trained model must reach."),
}


class _Defaults(Section):
    """What its pipelines' files need not say. A key that a pipeline's file gives counts, also null."""

    def beneath(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A pipeline file's content with the defaults for what it does not give."""
        return _merged(self.model_dump(exclude_none=True), data)


if TYPE_CHECKING:

    class PipelineDefaults(_Defaults):
        """As below: a model made by a call is no type to mypy."""

else:
    PipelineDefaults = create_model(
        "PipelineDefaults",
        __base__=_Defaults,
        __doc__=_Defaults.__doc__,
        **_optional(pipelines.Pipeline, TOP),
        **{name: (part | None, Field(default=None, description=text)) for name, (part, text) in _PARTS.items()},
    )


def _merged(beneath: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(beneath)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged
