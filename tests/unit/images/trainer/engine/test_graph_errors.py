"""TensorFlow's errors of a running graph, told in one line. Real errors of real graphs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.images.trainer.engine.conftest import Package
from trainer.engine import graph_errors, user_model
from trainer.errors import UserError

SOURCE = """
    import keras
    import tensorflow as tf

    class Strict(keras.layers.Layer):
        def call(self, x):
            tf.debugging.assert_less(x, 0.5, message="too bright")
            return x

    def build(config):
        return keras.Sequential([keras.Input((2,)), Strict(), keras.layers.Dense(3)])
"""


def test_the_users_line_and_the_reason(package: Package) -> None:
    import tensorflow as tf

    name = package(SOURCE)
    model = user_model.make(user_model.find(f"{name}:build"), {})
    function = tf.function(model)
    with pytest.raises(UserError) as caught, user_model.blame_user("step 1"):
        function(np.ones((4, 2), "float32"))
    text = str(caught.value)
    assert text.startswith(f"step 1: {name.replace('.', '/')}.py:7: InvalidArgumentError: ")
    assert "too bright" in text
    assert "\n" not in text


def test_a_kernel_of_tensorflows_own_has_no_line_of_the_user() -> None:
    import tensorflow as tf

    @tf.function
    def loss(y: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.zeros([2, 3]))

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        loss(tf.constant([1, 7]))
    told = graph_errors.told(caught.value)
    assert told.startswith("InvalidArgumentError: Received a label value of 7 which is outside the valid range of [0, 3)")
    assert "\n" not in told


def test_of_several_root_errors_the_first() -> None:
    text = "Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT:  no class\n\t [[{{node x}}]]\n  (1) CANCELLED:  x"
    assert graph_errors.told(ValueError(text)) == "ValueError: no class"


def test_a_text_without_a_reason() -> None:
    assert graph_errors.told(ValueError("Graph execution error:\n")) == "ValueError: TensorFlow gives no reason"
