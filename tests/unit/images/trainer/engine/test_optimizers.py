"""The pipeline's optimizers, and the count that loses nothing."""

from __future__ import annotations

import threading

import pytest

from trainer.engine import optimizers


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "adagrad"])
def test_each_lowers_the_loss_and_counts(name: str) -> None:
    import keras
    import tensorflow as tf

    variable = keras.Variable([3.0, -2.0])
    optimizer = optimizers.make(name, 0.05)
    optimizer.build([variable])
    optimizers.count_exactly(optimizer)
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable.value**2)
        optimizer.apply(tape.gradient(loss, [variable.value]), [variable])
    assert float(tf.reduce_sum(variable.value**2)) < 13.0
    assert int(optimizer.iterations.numpy()) == 5


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'lion': must be one of adagrad, adam, adamw, momentum, sgd"):
        optimizers.make("lion", 0.1)


def test_the_count_is_one_atomic_operation() -> None:
    """Keras' own ``assign_add`` reads, adds and writes: threads (as workers do) lose counts between."""
    import keras

    optimizer = optimizers.make("sgd", 0.1)
    optimizer.build([keras.Variable([1.0])])
    optimizers.count_exactly(optimizer)

    def count() -> None:
        for _ in range(500):
            optimizer.iterations.assign_add(1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(optimizer.iterations.numpy()) == 2000
