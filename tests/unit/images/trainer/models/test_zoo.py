"""The zoo's models: shapes, size, and that they learn. Real TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainer.models import cnn, mlp


@pytest.mark.parametrize(("build", "shape"), [(cnn.build, (28, 28, 1)), (mlp.build, (8, 8, 1))])
def test_logits_of_ten_classes_for_the_sample_datasets(build: Any, shape: tuple[int, ...]) -> None:
    model = build({})
    outputs = np.asarray(model(np.random.default_rng(0).random((4, *shape), np.float32)))
    assert outputs.shape == (4, 10)
    # Logits, not probabilities.
    assert not np.allclose(outputs.sum(-1), 1.0)


def test_config_shapes_the_model() -> None:
    model = cnn.build({"filters": [4, 8, 8], "dense": 16, "classes": 3, "input_shape": [16, 16, 3], "dropout": 0.0})
    assert model.input_shape == (None, 16, 16, 3)
    assert model.output_shape == (None, 3)
    assert sum("conv2d" in layer.name for layer in model.layers) == 3
    assert not any("dropout" in layer.name for layer in model.layers)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.config of `mlp` has no key 'layers'"):
        mlp.build({"layers": [3]})


def test_the_perceptron_learns() -> None:
    import keras

    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).random((1024, 8, 8, 1)).astype("float32")
    y = x.reshape(1024, 64)[:, :10].argmax(-1)
    model = mlp.build({})
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(x, y, batch_size=32, epochs=8, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2
