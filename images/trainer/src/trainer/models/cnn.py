"""A small convolutional classifier for images of fixed size. Convolution and pooling per entry of ``filters``, then one dense layer."""

from __future__ import annotations

from typing import Any

import keras

from trainer.models.options import read

DEFAULTS: dict[str, Any] = {
    "input_shape": [28, 28, 1],  # height, width, channels
    "filters": [16, 32],
    "kernel": 5,
    "dense": 128,
    "dropout": 0.5,
    "classes": 10,
}


def build(config: dict[str, Any]) -> keras.Model:
    """Logits of ``classes`` for images scaled to [0, 1].

    Raises:
        ValueError: ``config`` has an unknown key or a value of the wrong type.
    """
    options = read("cnn", config, DEFAULTS)
    layers = keras.layers
    # He's initialisation, as the layers are rectified: with Glorot's, deeper stacks stay at chance for epochs.
    stack: list[Any] = [keras.Input(tuple(options["input_shape"]), name="image")]
    for filters in options["filters"]:
        stack += [
            layers.Conv2D(filters, options["kernel"], padding="same", activation="relu", kernel_initializer="he_normal"),
            layers.MaxPooling2D(),
        ]
    stack += [layers.Flatten(), layers.Dense(options["dense"], activation="relu", kernel_initializer="he_normal")]
    if options["dropout"] > 0:
        stack.append(layers.Dropout(options["dropout"]))
    stack.append(layers.Dense(options["classes"], name="logits"))
    return keras.Sequential(stack, name="cnn")
