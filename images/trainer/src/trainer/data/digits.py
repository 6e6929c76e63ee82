"""``digits``: scikit-learn's 1,797 handwritten digits of 8×8 pixels, from the data file of its wheel.

Version 1.0.0 is the first 1,200 of them, 1.1.0 all 1,797: two versions that differ, as a growing data set does. Every fifth example in
file order is the test split; those of 1.0.0 are the same in 1.1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import tensorflow_datasets as tfds

from trainer.data import samples
from trainer.errors import DataError

FILE: Final = "sklearn/datasets/data/digits.csv.gz"
SIDE: Final = 8
EXAMPLES: Final = {"1.0.0": 1200, "1.1.0": 1797}
TEST_EVERY: Final = 5


class Digits(tfds.core.GeneratorBasedBuilder):
    """Image (uint8 8×8×1, grey values 0–16 scaled to 0–240) and label; the file's rows are 64 grey values and the digit."""

    name = "digits"
    VERSION = tfds.core.Version("1.1.0")
    SUPPORTED_VERSIONS = [tfds.core.Version("1.0.0")]
    RELEASE_NOTES = {"1.0.0": "The first 1,200 digits.", "1.1.0": "All 1,797 digits."}

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Handwritten digits of 8×8 pixels.",
            features=tfds.features.FeaturesDict(
                {"image": tfds.features.Image(shape=(SIDE, SIDE, 1), dtype=np.uint8), "label": tfds.features.ClassLabel(num_classes=10)}
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples(test=False), "test": self._generate_examples(test=True)}

    def _generate_examples(self, test: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        most = EXAMPLES[str(self.version)]
        for number, row in enumerate(samples.rows(FILE)):
            if number >= most:
                return
            if len(row) != SIDE * SIDE + 1:
                raise DataError(f"{samples.folder() / FILE}: line {number + 1} has {len(row)} values, expected {SIDE * SIDE + 1}")
            *pixels, label = row
            if (number % TEST_EVERY == TEST_EVERY - 1) == test:
                yield number, {"image": (np.array(pixels, np.uint8) * 15).reshape(SIDE, SIDE, 1), "label": label}
