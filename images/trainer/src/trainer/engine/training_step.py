"""One step of training: a batch in, gradients applied, the mean loss out. The same function in a gang and in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.engine.objective import Objective


def make(model: Any, optimizer: Any, objective: Objective) -> Callable[[Any, Any], Any]:
    """``step(x, y) -> mean loss``, to be called inside a tf.function. The optimizer is built already."""
    import tensorflow as tf

    variables = model.trainable_variables

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(objective.loss(y, model(x, training=True)))
            # Regularizers, and whatever layers added by add_loss.
            total = tf.add_n([loss, *[tf.cast(extra, loss.dtype) for extra in model.losses]]) if model.losses else loss
        optimizer.apply(tape.gradient(total, variables), variables)
        return tf.cast(loss, tf.float32)

    return step
