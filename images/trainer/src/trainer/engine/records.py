"""How a record becomes a model's input: for training per example, for serving per batch, by the same function.

A record is a dict of features (TFDS' names), one of them ``label``, a class number. The module that has the user's ``build`` may have
``preprocess(example) -> x``, which gets one record without its label. Else the feature named ``image`` or ``features`` (or the only one
there is) is taken, uint8 scaled to [0, 1], all as float32.
"""

from __future__ import annotations

from collections.abc import Mapping
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
