from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from trainer.data import samples
from trainer.errors import DataError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINYARD_SAMPLES", str(tmp_path))
    return tmp_path


def test_the_samples_lie_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINYARD_SAMPLES", raising=False)
    assert samples.folder() == Path(sys.prefix) / "share" / "samples"


def test_rows_are_whole_numbers_however_they_are_written(folder: Path) -> None:
    with gzip.open(folder / "x.csv.gz", "wt") as out:
        out.write("0,1.0,1.500000000000000000e+01\n2,3,4\n")
    assert list(samples.rows("x.csv.gz")) == [[0, 1, 15], [2, 3, 4]]


def test_a_missing_file_is_said_with_the_way_out(folder: Path) -> None:
    with pytest.raises(DataError, match=r"x\.csv\.gz is not there; the sample wheels go into .* \(or set TRAINYARD_SAMPLES\)"):
        list(samples.rows("x.csv.gz"))


def test_a_broken_line_is_named(folder: Path) -> None:
    with gzip.open(folder / "x.csv.gz", "wt") as out:
        out.write("1,2\n1,x\n")
    with pytest.raises(DataError, match=r"x\.csv\.gz: line 2: .*'x'"):
        list(samples.rows("x.csv.gz"))


@pytest.mark.parametrize("data", [b"plain text", gzip.compress(b"1,2\n" * 1000, mtime=0)[:-20]])
def test_a_file_that_is_not_whole_is_said(folder: Path, data: bytes) -> None:
    (folder / "x.csv.gz").write_bytes(data)
    with pytest.raises(DataError, match="cannot be read"):
        list(samples.rows("x.csv.gz"))
