"""Proves the user's model in this process on one batch of the declared shapes, computing nothing: mistakes show in a second.

Before a chief waits for its peers, before ``evaluate`` reads anything, and first of all in a local run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer.engine import objective, user_model
from trainer.engine.objective import Objective
from trainer.engine.records import Records
from trainer.engine.user_model import UserModel, blame_user
from trainer.errors import UserError
from trainer.spec import RunSpec


@dataclass(frozen=True)
class Proved:
    """A model that can be trained on the dataset; ``model`` has its first weights."""

    user: UserModel
    records: Records
    objective: Objective
    model: Any


def prove(spec: RunSpec, features: Mapping[str, Any]) -> Proved:
    """Finds and builds the run's model, and traces one step on the dataset's records.

    Raises:
        UserError: the model cannot be built, or cannot take a batch of the dataset.
    """
    import keras

    user = user_model.find(spec.model.build)
    records = Records(features, user)
    keras.utils.set_random_seed(spec.seed)
    model = user_model.make(user, spec.model.config)
    aim = objective.of(model, user)
    check(user, model, aim.loss, records, spec.training.batch_size)
    return Proved(user, records, aim, model)


def check(user: UserModel, model: Any, loss: Callable[[Any, Any], Any], records: Records, batch_size: int) -> None:
    """Traces one step on a batch of the declared shapes, computing nothing: wrong shapes and dtypes show here, in a second.

    Raises:
        UserError: the model cannot take such a batch, or has nothing to train, or too few outputs for the classes.
    """
    import tensorflow as tf

    one = records.input_spec()
    x = tf.nest.map_structure(lambda spec: tf.TensorSpec([batch_size, *spec.shape], spec.dtype), one)
    shapes = tf.nest.map_structure(lambda spec: f"{spec.dtype.name}{list(spec.shape)}", x)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            losses = loss(y, outputs)
            total = tf.reduce_mean(losses)
        return outputs, losses, tape.gradient(total, model.trainable_variables)

    with blame_user(f"{user.name}: one step on a batch of {shapes}"):
        outputs, losses, gradients = tf.function(step).get_concrete_function(x, tf.TensorSpec([batch_size], tf.int64)).structured_outputs
    if not model.trainable_variables:
        raise UserError(f"{user.name}: the model has no trainable weights")
    if all(gradient is None for gradient in gradients):
        raise UserError(f"{user.name}: no weight of the model has an influence on the loss")
    if losses.shape.rank is not None and losses.shape.rank > 1:
        raise UserError(f"{user.name}: the loss has shape {list(losses.shape)} for {batch_size} labels: one vector an example is wanted")
    width = getattr(outputs, "shape", [None])[-1]
    if records.classes is not None and width is not None and width < records.classes:
        raise UserError(f"{user.name}: the model has {width} outputs, the dataset's labels are {records.classes} classes")
