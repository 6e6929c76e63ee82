"""A trained model on held-out examples: accuracy, mean loss, how many. And the checkpoint it is read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer.engine.objective import Objective
from trainer.errors import DataError


@dataclass(frozen=True)
class Metrics:
    """Means over ``examples``."""

    accuracy: float
    loss: float
    examples: int

    def line(self) -> str:
        return f"accuracy {self.accuracy:.4f} loss {self.loss:.4f} over {self.examples} examples"


def restore(model: Any, prefix: str) -> None:
    """Reads a gang's checkpoint into a model of this one process; the optimizer's part is left out.

    Raises:
        DataError: the checkpoint is of another model.
    """
    import tensorflow as tf

    try:
        status = tf.train.Checkpoint(model=model).read(prefix)
        status.assert_existing_objects_matched()
        status.expect_partial()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        raise DataError(f"the checkpoint is not one of this model: {str(error).splitlines()[0]}") from error


def evaluate(model: Any, objective: Objective, batches: Any) -> Metrics:
    """Runs ``model`` over ``batches`` of ``(x, y)``, all of them once.

    Raises:
        DataError: there is not one example.
    """
    import tensorflow as tf

    @tf.function(reduce_retracing=True)
    def sums(x: Any, y: Any) -> tuple[Any, Any]:
        outputs = model(x, training=False)
        right = tf.equal(tf.argmax(outputs, -1, output_type=tf.int64), y)
        # In float64: the sum over a large split must not depend on its order.
        return tf.reduce_sum(tf.cast(right, tf.int64)), tf.reduce_sum(tf.cast(objective.loss(y, outputs), tf.float64))

    right, loss, examples = 0, 0.0, 0
    for x, y in batches:
        batch_right, batch_loss = sums(x, y)
        right, loss, examples = right + int(batch_right), loss + float(batch_loss), examples + int(y.shape[0])
    if not examples:
        raise DataError("the evaluation split has no examples")
    return Metrics(right / examples, loss / examples, examples)
