"""What is minimised, and what a model's outputs mean. Classification: ``label`` is a class number.

The convention: a model that is not compiled ends in logits, and cross-entropy is minimised. A model that its ``build`` compiled with a
loss is trained with that loss. (Of ``compile`` nothing else is used: the optimizer is the pipeline's.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from trainer.engine.user_model import UserModel
from trainer.errors import UserError

Outputs = Literal["logits", "probabilities", "scores"]
_CROSS_ENTROPY = ("sparsecategoricalcrossentropy",)


@dataclass(frozen=True)
class Objective:
    """``loss(y, outputs)`` gives one loss per example."""

    loss: Callable[[Any, Any], Any]
    outputs: Outputs
    """What the model gives: ``logits`` (a softmax makes them probabilities), ``probabilities``, or ``scores`` of a loss we do not know."""


def of(model: Any, user: UserModel) -> Objective:
    """The objective that ``model`` is trained with.

    Raises:
        UserError: outputs that are no logits, without a loss that says so.
    """
    import keras

    given = getattr(model, "loss", None)
    if given is None:
        last: Any = model.layers[-1] if model.layers else None
        activation = getattr(last, "activation", None)
        if isinstance(last, keras.layers.Softmax) or activation in (keras.activations.softmax, keras.activations.sigmoid):
            raise UserError(
                f"{user.name}: the last layer `{last.name}` makes probabilities, and a model that is not compiled must end in logits: "
                "take its activation away, or compile the model in `build` with a loss of its own"
            )
        return Objective(keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"), outputs="logits")
    loss = keras.losses.get(given) if isinstance(given, str) else given
    if isinstance(loss, keras.losses.Loss):
        # The mean is over examples that we count ourselves, so no reduction; on a copy, as the object is the user's.
        loss = copy.copy(loss)
        loss.reduction = "none"
        return Objective(loss, _meaning(type(loss).__name__, bool(loss.get_config().get("from_logits", False))))
    if callable(loss):
        return Objective(loss, _meaning(getattr(loss, "__name__", ""), logits=False))
    raise UserError(f"{user.name}: compiled with loss {given!r}: it must be one loss (a keras.losses.Loss, its name, or a function)")


def _meaning(loss: str, logits: bool) -> Outputs:
    if loss.replace("_", "").lower() not in _CROSS_ENTROPY:
        return "scores"
    return "logits" if logits else "probabilities"
