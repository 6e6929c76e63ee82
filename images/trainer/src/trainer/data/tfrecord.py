"""TFRecord files record by record, without TensorFlow: what copying records between files needs, and no more.

Framing (tensorflow/core/lib/io/record_writer.h)::

    uint64 length · uint32 masked crc32c of length · byte data[length] · uint32 masked crc32c of data      all little-endian

Records are copied with their checksums as they are, so nothing here computes one; whole files are checked by SHA-256 around it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainer.errors import DataError

_HEADER: Final = struct.Struct("<Q4x")
_FOOTER_BYTES: Final = 4


def frames(path: Path, skip: int = 0, take: int | None = None) -> Iterator[bytes]:
    """The records of a file in their framing, after the first ``skip`` of them, at most ``take``.

    Raises:
        DataError: the file ends in the middle of a record, or before ``skip`` + ``take`` records.
    """
    size = path.stat().st_size
    wanted = None if take is None else skip + take
    with path.open("rb") as stream:
        number = 0
        while wanted is None or number < wanted:
            header = stream.read(_HEADER.size)
            if not header:
                if wanted is None:
                    return
                raise DataError(f"{path}: has {number} records, expected at least {wanted}")
            rest = (_HEADER.unpack(header)[0] + _FOOTER_BYTES) if len(header) == _HEADER.size else size
            if stream.tell() + rest > size:
                raise DataError(f"{path}: ends in the middle of record {number}")
            if number < skip:
                stream.seek(rest, 1)
            else:
                yield header + stream.read(rest)
            number += 1


def count(path: Path) -> int:
    """Number of records in a file.

    Raises:
        DataError: the file ends in the middle of a record.
    """
    return sum(1 for _ in frames(path))
