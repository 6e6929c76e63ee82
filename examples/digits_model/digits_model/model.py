"""A classifier for the 8 × 8 digits. All that a pipeline needs is ``build``; ``preprocess`` is there as the grey values are 0–240.

Published by ``trainyard publish`` (or by ``trainyard run``, which publishes first) and named in a pipeline as::

    model: {package: digits_model, build: "digits_model.model:build", config: {hidden: 96}}
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from digits_model.layers import ResidualDense


def preprocess(example: dict[str, Any]) -> Any:
    """One record's features (without its label) to the model's input. Also part of the exported model: it takes raw records."""
    return tf.cast(example["image"], tf.float32) / 240.0


def build(config: dict[str, Any]) -> keras.Model:
    """Logits of the ten digits. ``config`` is what the pipeline's ``model.config`` says."""
    hidden = int(config.get("hidden", 64))
    blocks = int(config.get("blocks", 2))
    if hidden < 1 or blocks < 0:
        raise ValueError(f"hidden must be ≥ 1 and blocks ≥ 0, not {hidden} and {blocks}")
    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Flatten()(inputs)
    x = keras.layers.Dense(hidden, activation="relu", kernel_initializer="he_normal")(x)
    for _ in range(blocks):
        x = ResidualDense(hidden)(x)
    return keras.Model(inputs, keras.layers.Dense(10, name="logits")(x), name="digits_own")
