"""TFDS builders by dotted name, at the dataset version that the run asks for.

TFDS prepares a builder only at its ``VERSION``; the others in ``SUPPORTED_VERSIONS`` it can only read. A dataset of ours has many
versions that are all prepared from the same class, so the class is narrowed to the version asked for, before TFDS sees it.
"""

from __future__ import annotations

import importlib.resources
import importlib.resources.abc
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer import code
from trainer.errors import DataError, UserError


def load_builder(name: str, version: str, config: Mapping[str, Any], data_dir: Path) -> Any:
    """A ``tfds.core.DatasetBuilder`` that prepares exactly ``version`` into ``data_dir``.

    ``config`` are keyword arguments of the builder's constructor (``config: {config: subwords8k}`` picks a named TFDS config).

    Raises:
        UserError: the name is not a builder, or its constructor refuses ``config``.
        DataError: the builder does not know the version.
    """
    # TFDS 4.9 asks for the back-port importlib_resources of every builder that lies in a package, and does not declare it; the standard
    # library's module is the same since Python 3.10.
    sys.modules.setdefault("importlib_resources", importlib.resources)
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()  # a log is not a terminal
    with tfds.core.registered.skip_registration():
        found = code.resolve(name, "dataset.builder")
        if not (inspect.isclass(found) and issubclass(found, tfds.core.DatasetBuilder)):
            raise UserError(f"dataset.builder: {name!r} is not a tensorflow_datasets builder class")
        if inspect.isabstract(found):
            raise UserError(f"dataset.builder: {name!r} lacks {', '.join(sorted(getattr(found, '__abstractmethods__', ())))}")
        narrowed = _at_version(found, name, version, tfds)
    try:
        return narrowed(data_dir=str(data_dir), file_format="tfrecord", **config)
    except Exception as error:
        raise UserError(f"dataset.builder: {name!r} cannot be made with config {dict(config)}: {code.blame(error)}") from error


def _at_version(found: Any, name: str, version: str, tfds: Any) -> Any:
    known = [str(v) for v in (found.VERSION, *found.SUPPORTED_VERSIONS) if v is not None]
    if version not in known:
        raise DataError(f"dataset.version: {name!r} does not know version {version}; it knows {', '.join(known) or 'none'}")
    return type(
        found.__name__,
        (found,),
        {
            "VERSION": tfds.core.Version(version),
            "SUPPORTED_VERSIONS": [],
            "name": found.name,
            # TFDS looks for metadata and checksum files beside the class' module.
            "__module__": found.__module__,
        },
    )
