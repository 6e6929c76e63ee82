"""Models of users, as a run finds them: unpacked by digest, in front of ``sys.path``."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Package = Callable[[str], str]
_NUMBERS = itertools.count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """``package(source)`` makes a user's package whose ``model`` module has that source, and gives the module's dotted name."""
    made = []

    def make(source: str) -> str:
        number = next(_NUMBERS)
        name = f"someones_model_{number}"
        folder = tmp_path / "code" / f"{number:064x}"
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        (folder / name / "model.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        made.append(name)
        return f"{name}.model"

    yield make
    for name in [loaded for loaded in sys.modules if loaded.partition(".")[0] in made]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def features() -> dict[str, Any]:
    """The features of the digits, as a manifest carries them."""
    import numpy as np
    import tensorflow_datasets as tfds

    return features_json({"image": tfds.features.Image(shape=(8, 8, 1), dtype=np.uint8), "label": tfds.features.ClassLabel(num_classes=10)})


def features_json(features: Any) -> dict[str, Any]:
    """TFDS' own document of some features."""
    import json

    import tensorflow_datasets as tfds

    return dict(json.loads(json.dumps(tfds.features.FeaturesDict(features).to_json())))
