"""The pipeline's optimizer, as Keras makes it, with a step count that loses nothing when several workers apply at once."""

from __future__ import annotations

from typing import Any


def make(name: str, learning_rate: float) -> Any:
    """An optimizer of the run spec's ``training.optimizer``; ``momentum`` is SGD with 0.9, as usual.

    Raises:
        ValueError: no such optimizer.
    """
    import keras

    makers = {
        "sgd": lambda: keras.optimizers.SGD(learning_rate),
        "momentum": lambda: keras.optimizers.SGD(learning_rate, momentum=0.9),
        "adam": lambda: keras.optimizers.Adam(learning_rate),
        "adamw": lambda: keras.optimizers.AdamW(learning_rate),
        "adagrad": lambda: keras.optimizers.Adagrad(learning_rate),
    }
    if name not in makers:
        raise ValueError(f"training.optimizer {name!r}: must be one of {', '.join(sorted(makers))}")
    return makers[name]()


def count_exactly(optimizer: Any) -> None:
    """Makes ``optimizer.iterations`` an atomic counter on the PS.

    Keras 3 counts by ``assign(self + 1)``: read, add, write. With two workers 255 of 300 counts were left (measured), and Adam's bias
    correction reads that count. TensorFlow's own ``assign_add`` is one operation on the PS. To be called inside the strategy's scope,
    after ``optimizer.build``.
    """
    import tensorflow as tf

    iterations = optimizer._iterations
    object.__setattr__(iterations, "assign_add", lambda value: iterations.value.assign_add(tf.cast(value, iterations.value.dtype)))
