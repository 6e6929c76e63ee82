"""A layer of our own, to show that a package may have as many modules as it likes."""

from __future__ import annotations

from typing import Any

import keras


class ResidualDense(keras.layers.Layer):
    """``x + relu(W x + b)``."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.dense = keras.layers.Dense(units, activation="relu", kernel_initializer="he_normal")

    def build(self, shape: Any) -> None:
        self.dense.build(shape)
        super().build(shape)

    def call(self, x: Any) -> Any:
        return x + self.dense(x)
