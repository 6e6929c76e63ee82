"""How a record becomes a model's input: for training per example, for serving per batch, by the same function.

A record is a dict of features (TFDS' names), one of them ``label``, a class number. The module that has the user's ``build`` may have
``preprocess(example) -> x``, which gets one record without its label. Else the feature named ``image`` or ``features`` (or the only one
there is) is taken, uint8 scaled to [0, 1], all as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trainer.engine.user_model import UserModel, blame_user
from trainer.errors import UserError

LABEL: Final = "label"
_DEFAULTS: Final = ("image", "features")


class Records:
    """The records of one dataset, as one model takes them."""

    def __init__(self, features: Mapping[str, Any], user: UserModel) -> None:
        """``features`` is TFDS' ``features.json`` document, from the manifest.

        Raises:
            UserError: no ``label``, or no feature that can be taken without a ``preprocess``.
        """
        import tensorflow_datasets as tfds

        connector = tfds.features.FeatureConnector.from_json(features)
        info = connector.get_tensor_info()
        if not isinstance(info, Mapping) or LABEL not in info:
            raise UserError(f"the dataset's records have no feature `{LABEL}`: {_names(info)}")
        self._info = {name: tensor for name, tensor in info.items() if name != LABEL}
        self._user = user
        self.classes: int | None = getattr(connector[LABEL], "num_classes", None)
        """Number of classes, where the dataset says so."""
        self._taken = "" if user.preprocess else self._choose()

    def _choose(self) -> str:
        names = list(self._info)
        for name in (*_DEFAULTS, *(names if len(names) == 1 else ())):
            if name in self._info and not isinstance(self._info[name], Mapping):
                return name
        raise UserError(
            f"the dataset's records have the features {_names(self._info)}, none of them `image` or `features`: "
            f"give `preprocess(example)` beside {self._user.name}"
        )

    def transform(self, example: Mapping[str, Any]) -> tuple[Any, Any]:
        """One decoded record to ``(x, y)``; for ``tf.data``."""
        import tensorflow as tf

        return self._input(example), tf.cast(example[LABEL], tf.int64)

    def _input(self, example: Mapping[str, Any]) -> Any:
        features = {name: value for name, value in example.items() if name != LABEL}
        if self._user.preprocess is None:
            return scaled(features[self._taken])
        with blame_user(f"preprocess(example) beside {self._user.name}"):
            return self._user.preprocess(features)

    def batch(self, features: Mapping[str, Any]) -> Any:
        """A batch of raw features (without label) to a batch of inputs: what the exported model does first."""
        import tensorflow as tf

        if self._user.preprocess is None:
            return scaled(features[self._taken])
        return tf.map_fn(self._input, dict(features), fn_output_signature=self.input_spec())

    def signature(self) -> dict[str, Any]:
        """Raw features that a served model takes, batched: name to TensorSpec. Without ``preprocess``, the one that is taken."""
        import tensorflow as tf

        names = [self._taken] if self._taken else list(self._info)
        nested = [name for name in names if isinstance(self._info[name], Mapping)]
        if nested:
            raise UserError(f"the dataset's feature {nested[0]!r} is nested, a serving signature is not: flatten it in the builder")
        return {name: tf.TensorSpec([None, *self._info[name].shape], self._info[name].tf_dtype, name=name) for name in names}

    def input_spec(self) -> Any:
        """TensorSpecs of one example's input, by tracing the user's ``preprocess`` on a record of the declared shapes.

        Raises:
            UserError: ``preprocess`` raised.
        """
        import tensorflow as tf

        record = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.tf_dtype), self._info)
        outputs = tf.function(self._input).get_concrete_function(record).structured_outputs
        return tf.nest.map_structure(lambda output: tf.TensorSpec(output.shape, output.dtype), outputs)


def scaled(value: Any) -> Any:
    """float32; uint8 scaled from 0–255 to 0–1."""
    import tensorflow as tf

    number = tf.cast(value, tf.float32)
    return number / 255.0 if value.dtype == tf.uint8 else number


def _names(info: Any) -> str:
    return ", ".join(sorted(info)) if isinstance(info, Mapping) else f"a single {type(info).__name__}"


def check(user: UserModel, model: Any, loss: Callable[[Any, Any], Any], records: Records, batch_size: int) -> None:
    """Traces one step on a batch of the declared shapes, computing nothing: wrong shapes and dtypes show here, in a second.

    Raises:
        UserError: the model cannot take such a batch, or has nothing to train, or too few outputs for the classes.
    """
    import tensorflow as tf

    one = records.input_spec()
    x = tf.nest.map_structure(lambda spec: tf.TensorSpec([batch_size, *spec.shape], spec.dtype), one)
    shapes = tf.nest.map_structure(lambda spec: f"{spec.dtype.name}{list(spec.shape)}", x)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            losses = loss(y, outputs)
            total = tf.reduce_mean(losses)
        return outputs, losses, tape.gradient(total, model.trainable_variables)

    with blame_user(f"{user.name}: one step on a batch of {shapes}"):
        outputs, losses, gradients = tf.function(step).get_concrete_function(x, tf.TensorSpec([batch_size], tf.int64)).structured_outputs
    if not model.trainable_variables:
        raise UserError(f"{user.name}: the model has no trainable weights")
    if all(gradient is None for gradient in gradients):
        raise UserError(f"{user.name}: no weight of the model has an influence on the loss")
    if losses.shape.rank is not None and losses.shape.rank > 1:
        raise UserError(f"{user.name}: the loss has shape {list(losses.shape)} for {batch_size} labels: one vector an example is wanted")
    width = getattr(outputs, "shape", [None])[-1]
    if records.classes is not None and width is not None and width < records.classes:
        raise UserError(f"{user.name}: the model has {width} outputs, the dataset's labels are {records.classes} classes")
