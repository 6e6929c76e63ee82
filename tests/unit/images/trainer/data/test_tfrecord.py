"""TFRecord framing against TensorFlow's own description of it: files are made here byte by byte, no checksum is looked at."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from trainer.data import tfrecord
from trainer.errors import DataError


def _frame(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + b"CRC1" + data + b"CRC2"


RECORDS = [b"zero", b"", b"two" * 1000, b"3"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "x.tfrecord"
    file.write_bytes(b"".join(map(_frame, RECORDS)))
    return file


def test_frames_are_copied_as_they_are(path: Path) -> None:
    assert b"".join(tfrecord.frames(path)) == path.read_bytes()
    assert tfrecord.count(path) == 4


@pytest.mark.parametrize(("skip", "take"), [(0, 4), (1, 2), (3, 1), (4, 0), (0, 0)])
def test_a_window(path: Path, skip: int, take: int) -> None:
    assert list(tfrecord.frames(path, skip, take)) == [_frame(record) for record in RECORDS[skip : skip + take]]


@pytest.mark.parametrize(("skip", "take"), [(0, 5), (4, 1), (9, 1)])
def test_more_than_there_is_is_an_error(path: Path, skip: int, take: int) -> None:
    with pytest.raises(DataError, match="has 4 records, expected at least"):
        list(tfrecord.frames(path, skip, take))


@pytest.mark.parametrize("cut", [1, 5, 13])
def test_a_file_that_was_cut_is_an_error(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match="ends in the middle of record 3"):
        list(tfrecord.frames(path))
