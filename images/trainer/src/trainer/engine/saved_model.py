"""The exported model: a SavedModel in TensorFlow Serving's layout that takes raw records, so whoever serves it need not know our scaling.

Signature ``serving_default``: a batch of the dataset's features as they are stored (e.g. ``image`` uint8 [n, 28, 28, 1]) to
``probabilities`` [n, classes] and ``class`` [n]; ``scores`` instead of ``probabilities`` for a loss whose outputs we cannot interpret.
Plain TensorFlow loads it; neither Keras, nor the trainer, nor the user's package is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trainer.engine.proof import Proved
from trainer.engine.user_model import blame_user
from trainer.errors import UserError

TOLERANCE: Final = 1e-3
"""Of the loaded model's outputs against the model's own; float32 kernels differ far less."""


def export(proved: Proved, folder: Path) -> None:
    """Writes the SavedModel into ``folder``.

    Raises:
        UserError: the model or ``preprocess`` cannot be traced for a batch of raw records.
    """
    import tensorflow as tf

    model, objective, records = proved.model, proved.objective, proved.records

    class Served(tf.Module):
        """What is saved: the weights and one function."""

        def __init__(self) -> None:
            super().__init__(name="served")
            self.model = model

        @tf.function
        def serve(self, **features: Any) -> dict[str, Any]:
            outputs = self.model(records.batch(features), training=False)
            name = "scores" if objective.outputs == "scores" else "probabilities"
            return {name: tf.nn.softmax(outputs) if objective.outputs == "logits" else outputs, "class": tf.argmax(outputs, -1)}

    served = Served()
    with blame_user(f"{proved.user.name}: exporting the model"):
        signature = served.serve.get_concrete_function(**records.signature())
        tf.saved_model.save(served, str(folder), signatures={"serving_default": signature})


def prove(proved: Proved, folder: Path, features: Mapping[str, Any], expected: Any) -> None:
    """Loads what was written and compares it with the model's own outputs on one batch of raw records.

    Raises:
        UserError: they differ: ``preprocess`` does something else on one record than on the same record again.
    """
    import tensorflow as tf

    objective = proved.objective
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    given = {name: features[name] for name in loaded.structured_input_signature[1]}
    found = loaded(**given)["scores" if objective.outputs == "scores" else "probabilities"]
    wanted = tf.nn.softmax(expected) if objective.outputs == "logits" else expected
    difference = float(tf.reduce_max(tf.abs(tf.cast(found, tf.float32) - tf.cast(wanted, tf.float32))))
    if not difference <= TOLERANCE:
        raise UserError(
            f"{proved.user.name}: the exported model gives other outputs than the trained one on the same records (by {difference:.3g}): "
            "is there something random in `preprocess` or in the model outside training?"
        )
