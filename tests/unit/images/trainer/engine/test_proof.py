"""What a user may give, and what is said when it cannot be trained. Real Keras models; nothing is computed, only traced."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.unit.images.trainer.engine.conftest import Package, features_json
from trainer import spec as specs
from trainer.engine import proof, records, user_model
from trainer.errors import UserError

GOOD = """
    import keras

    def build(config):
        return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(config.get("units", 10))])
"""


def prove(build: str, features: dict[str, Any], **config: Any) -> proof.Proved:
    document = run_spec_document(model={"build": build, "config": config}, training__batch_size=4)
    return proof.prove(specs.load(json.dumps(document)), features)


def test_a_good_model(package: Package, features: dict[str, Any]) -> None:
    proved = prove(f"{package(GOOD)}:build", features)
    assert proved.model.output_shape == (None, 10)
    assert proved.objective.outputs == "logits"
    assert proved.records.classes == 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def build(config:\n    pass", r"model\.py:1: SyntaxError: '\(' was never closed"),
        ("import keras\nimport numpie\ndef build(config): pass", r"model\.py:2: ModuleNotFoundError: No module named 'numpie'"),
        ("def make(config): pass", r"module '.*\.model' has no 'build'; it defines: make"),
        ("build = 3", "is int: it must be a function"),
        ("def build(config):\n    return config['hidden']", r"build\(config\): .*model\.py:2: KeyError: 'hidden'"),
        ("def build(config):\n    return 'model'", r"gave str: it must return a keras\.Model"),
        ("def build(): pass", r"takes 0 positional arguments but 1 was given"),
    ],
)
def test_what_cannot_be_built_is_told_with_the_users_line(package: Package, features: dict[str, Any], source: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prove(f"{package(source)}:build", features)
    assert "\n" not in str(caught.value), "one line"


def layers(*lines: str, compile: str = "") -> str:
    inner = ", ".join(lines)
    text = f"import keras, tensorflow as tf\nfrom keras import layers as l\ndef build(config):\n    m = keras.Sequential([{inner}])\n"
    return text + (f"    m.compile({compile})\n" if compile else "") + "    return m\n"


FLAT = "keras.Input((8, 8, 1)), l.Flatten()"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (layers("keras.Input((28, 28, 1))", "l.Flatten()", "l.Dense(10)"), r"one step on a batch of float32\[4, 8, 8, 1\]: .*"),
        (layers(FLAT, "l.Dense(9)"), "the model has 9 outputs, the dataset's labels are 10 classes"),
        (layers(FLAT, "l.Dense(10, activation='softmax')"), "makes probabilities.*must end in logits"),
        (layers(FLAT, "l.Dense(10)", "l.Softmax()"), "makes probabilities"),
        (layers("keras.Input((8, 8, 1))", "l.Flatten()"), "the model has no trainable weights"),
        (layers(FLAT, "l.Dense(10)", "l.Lambda(tf.stop_gradient)"), "no weight of the model has an influence on the loss"),
        (layers("keras.Input((8, 8, 1))", "l.Conv2D(10, 3)"), "one step on a batch|the loss has shape"),
        (layers(FLAT, "l.Dense(10)", compile="loss=3"), "compiled with loss 3"),
    ],
)
def test_what_cannot_be_trained_is_told(package: Package, features: dict[str, Any], source: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prove(f"{package(source)}:build", features)


@pytest.mark.parametrize(
    ("compiled", "outputs"),
    [
        ("loss='sparse_categorical_crossentropy'", "probabilities"),
        ("loss=keras.losses.SparseCategoricalCrossentropy()", "probabilities"),
        ("loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)", "logits"),
        ("loss=lambda y, p: tf.reduce_mean((p - tf.one_hot(y, 10)) ** 2, -1)", "scores"),
    ],
)
def test_a_compiled_model_is_trained_with_its_own_loss(package: Package, features: dict[str, Any], compiled: str, outputs: str) -> None:
    last = "l.Dense(10)" if "from_logits" in compiled else "l.Dense(10, activation='softmax')"
    proved = prove(f"{package(layers(FLAT, last, compile=compiled))}:build", features)
    assert proved.objective.outputs == outputs
    losses = np.asarray(proved.objective.loss(np.array([1, 2]), np.full((2, 10), 0.1, "float32")))
    assert losses.shape == (2,), "one loss an example: the mean is ours"


class TestRecords:
    def test_images_are_scaled_and_labels_are_int64(self, package: Package, features: dict[str, Any]) -> None:
        taking = records.Records(features, user_model.find(f"{package(GOOD)}:build"))
        x, y = taking.transform({"image": np.full((8, 8, 1), 255, np.uint8), "label": np.int64(3)} | _tensors())
        assert float(np.max(x)) == 1.0
        assert (x.dtype, y.dtype) == ("float32", "int64")
        spec = taking.signature()["image"]
        assert (spec.shape.as_list(), spec.dtype) == ([None, 8, 8, 1], "uint8")

    def test_preprocess_is_the_same_for_one_record_and_for_a_batch(self, package: Package) -> None:
        import tensorflow as tf
        import tensorflow_datasets as tfds

        features = features_json(
            {
                "left": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                "right": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                "label": tfds.features.ClassLabel(num_classes=2),
            }
        )
        source = GOOD + "\n    def preprocess(example):\n        return example['left'] - 2 * example['right']\n"
        taking = records.Records(features, user_model.find(f"{package(source)}:build"))
        left, right = tf.constant([[1.0, 2, 3], [4, 5, 6]]), tf.constant([[1.0, 1, 1], [2, 2, 2]])
        batch = taking.batch({"left": left, "right": right})
        single = [taking.transform({"left": left[i], "right": right[i], "label": tf.constant(1, tf.int64)})[0] for i in range(2)]
        np.testing.assert_array_equal(batch, np.stack(single))
        assert sorted(taking.signature()) == ["left", "right"]

    def test_a_preprocess_that_fails_is_the_users(self, package: Package, features: dict[str, Any]) -> None:
        source = GOOD + "\n    def preprocess(example):\n        return example['picture']\n"
        with pytest.raises(UserError, match=r"preprocess\(example\).*KeyError: 'picture'"):
            prove(f"{package(source)}:build", features)

    def test_records_without_a_label(self, package: Package) -> None:
        import tensorflow_datasets as tfds

        features = features_json({"image": tfds.features.Image(shape=(8, 8, 1))})
        with pytest.raises(UserError, match="no feature `label`: image"):
            records.Records(features, user_model.find(f"{package(GOOD)}:build"))

    def test_several_features_want_a_preprocess(self, package: Package) -> None:
        import tensorflow_datasets as tfds

        scalar = tfds.features.Scalar(dtype=np.float32)
        features = features_json({"a": scalar, "b": scalar, "label": tfds.features.ClassLabel(num_classes=2)})
        with pytest.raises(UserError, match=r"features a, b, none of them `image` or `features`: give `preprocess\(example\)`"):
            records.Records(features, user_model.find(f"{package(GOOD)}:build"))


def _tensors() -> dict[str, Any]:
    import tensorflow as tf

    return {"image": tf.fill([8, 8, 1], tf.constant(255, tf.uint8)), "label": tf.constant(3, tf.int64)}


@pytest.mark.parametrize("argument", ["", "0", "'bye'"])
def test_code_that_ends_the_process_is_a_mistake_with_its_line(package: Package, features: dict[str, Any], argument: str) -> None:
    name = package(f"import sys\n\ndef build(config):\n    sys.exit({argument})")
    with pytest.raises(UserError, match=r"build\(config\): \S*model\.py:4: SystemExit.*must not end its process"):
        prove(f"{name}:build", features)


def test_a_server_that_is_gone_is_nobodys_mistake() -> None:
    import tensorflow as tf

    with pytest.raises(tf.errors.UnavailableError), user_model.blame_user("building"):
        raise tf.errors.UnavailableError(None, None, "failed to connect")
