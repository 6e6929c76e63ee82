from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from local.kubelet import logformat
from local.kubelet.logformat import MAX_ENTRY, LineWriter, parse, timestamp


def test_a_time_has_nine_digits_so_that_times_sort_as_text() -> None:
    assert timestamp(1_767_225_600_000_000_001) == "2026-01-01T00:00:00.000000001Z"
    assert timestamp(1_767_225_600_500_000_000) == "2026-01-01T00:00:00.500000000Z"


def entries(path: Path) -> list[tuple[bytes, bool, bytes]]:
    found = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        parsed = parse(line)
        assert parsed is not None
        assert re.match(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$", parsed[0])
        found.append(parsed[1:])
    return found


def test_lines_are_put_together_from_pieces_by_stream(tmp_path: Path) -> None:
    with LineWriter(tmp_path / "log") as log:
        log.write("stdout", b"one\ntw")
        log.write("stderr", b"err\n")
        log.write("stdout", b"o\r\n\n1\r2\nlast")
    assert entries(tmp_path / "log") == [
        (b"stdout", True, b"one"),
        (b"stderr", True, b"err"),
        (b"stdout", True, b"two"),
        (b"stdout", True, b""),
        (b"stdout", True, b"1\r2"),
        (b"stdout", False, b"last"),
    ]


def test_a_long_line_is_cut_into_parts_that_make_it_up_again(tmp_path: Path) -> None:
    line = os.urandom(5 * MAX_ENTRY + 17).replace(b"\n", b"-")
    with LineWriter(tmp_path / "log") as log:
        for start in range(0, len(line), 7001):
            log.write("stdout", line[start : start + 7001])
        log.write("stdout", b"\nnext\n")
    found = [parse(entry) for entry in (tmp_path / "log").read_bytes().split(b"\n")[:-1]]
    assert b"".join(entry[3] for entry in found[:-1] if entry) == line
    assert [entry[2] for entry in found if entry] == [False] * 5 + [True, True]
    assert max(len(entry[3]) for entry in found if entry) <= MAX_ENTRY


def test_a_full_disk_drops_lines_and_says_so_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, full = os.write, [False]

    def write(fd: int, data: bytes) -> int:
        if full[0]:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(logformat.os, "write", write)
    with LineWriter(tmp_path / "log") as log:
        log.write("stdout", b"before\n")
        full[0] = True
        log.write("stdout", b"lost\n")
        full[0] = False
        log.write("stdout", b"after\n")
    texts = [text for _, _, text in entries(tmp_path / "log")]
    assert texts[0] == b"before"
    assert b"the disk was full" in texts[1]
    assert texts[2] == b"after"


@pytest.mark.parametrize("torn", [b"", b"2026-01-01T00:00:00", b"2026 stdout F"])
def test_a_torn_entry_is_none(torn: bytes) -> None:
    assert parse(torn) is None
