"""A plain multi-layer classifier: whatever comes in is flattened."""

from __future__ import annotations

from typing import Any

import keras

from trainer.models.options import read

DEFAULTS: dict[str, Any] = {
    "input_shape": [8, 8, 1],
    "hidden": [64],
    "dropout": 0.0,
    "classes": 10,
}


def build(config: dict[str, Any]) -> keras.Model:
    """Logits of ``classes`` for inputs scaled to [0, 1].

    Raises:
        ValueError: ``config`` has an unknown key or a value of the wrong type.
    """
    options = read("mlp", config, DEFAULTS)
    layers = keras.layers
    stack: list[Any] = [keras.Input(tuple(options["input_shape"]), name="features"), layers.Flatten()]
    for units in options["hidden"]:
        stack.append(layers.Dense(units, activation="relu", kernel_initializer="he_normal"))
        if options["dropout"] > 0:
            stack.append(layers.Dropout(options["dropout"]))
    stack.append(layers.Dense(options["classes"], name="logits"))
    return keras.Sequential(stack, name="mlp")
