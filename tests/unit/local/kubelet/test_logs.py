from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.kubelet import logs
from local.kubelet.logformat import LineWriter
from local.kubelet.logs import BadQuery, LogQuery, tail_offset, tail_text

NOW = datetime.datetime(2026, 1, 1, 0, 1, tzinfo=datetime.UTC)


def entry(second: int, text: str, end: str = "F", stream: str = "stdout") -> str:
    return f"2026-01-01T00:00:{second:02}.000000000Z {stream} {end} {text}\n"


def read(path: Path, **values: str) -> str:
    async def collect() -> bytes:
        return b"".join([piece async for piece in logs.read(path, LogQuery.parse(values, NOW), lambda: True)])

    return asyncio.run(collect()).decode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log"
    file.write_text(entry(1, "a") + entry(2, "b", stream="stderr") + entry(3, "lo", "P") + entry(3, "ng") + entry(50, "d"))
    return file


def test_all_of_it(log: Path) -> None:
    assert read(log) == "a\nb\nlong\nd\n"


def test_timestamps_stand_once_before_a_line_in_parts(log: Path) -> None:
    lines = read(log, timestamps="true").splitlines()
    assert lines[2] == "2026-01-01T00:00:03.000000000Z long"
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"sinceSeconds": "20"}, "d\n"),
        ({"sinceSeconds": "57"}, "long\nd\n"),
        ({"sinceTime": "2026-01-01T00:00:02Z"}, "b\nlong\nd\n"),
        ({"sinceTime": "2026-01-01T01:00:02+01:00"}, "b\nlong\nd\n"),
        ({"sinceTime": "2026-01-01T00:00:02.500000001Z"}, "long\nd\n"),
        ({"tailLines": "1"}, "d\n"),
        ({"tailLines": "0"}, ""),
        ({"tailLines": "99"}, "a\nb\nlong\nd\n"),
        ({"limitBytes": "3"}, "a\nb"),
        ({"tailLines": "4", "sinceSeconds": "20", "limitBytes": "1"}, "d"),
    ],
)
def test_selections(log: Path, values: dict[str, str], text: str) -> None:
    assert read(log, **values) == text


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"tailLines": "x"}, "tailLines"),
        ({"tailLines": "-1"}, "tailLines"),
        ({"limitBytes": "0"}, "limitBytes"),
        ({"sinceTime": "yesterday"}, "sinceTime"),
        ({"follow": "maybe"}, "follow"),
        ({"sinceTime": "2026-01-01T00:00:02Z", "sinceSeconds": "1"}, "sinceTime"),
    ],
)
def test_bad_queries_name_the_parameter(values: dict[str, str], word: str) -> None:
    with pytest.raises(BadQuery, match=word):
        LogQuery.parse(values, NOW)


@given(st.lists(st.integers(0, 30_000), max_size=30), st.integers(0, 35))
def test_the_tail_is_what_splitting_all_lines_gives(lengths: list[int], wanted: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        lines = [b"%d" % index + b"x" * length + b"\n" for index, length in enumerate(lengths)]
        file.write_bytes(b"".join(lines))
        expected = b"".join(lines[len(lines) - wanted :] if wanted < len(lines) else lines) if wanted else b""
        assert file.read_bytes()[tail_offset(file, wanted) :] == expected


def test_following_reads_what_is_written_later_and_all_of_the_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    ended = [False]

    async def follow() -> list[bytes]:
        with LineWriter(file) as log:
            log.write("stdout", b"first\n")
            pieces = []

            async def reader() -> None:
                async for piece in logs.read(file, LogQuery(follow=True), lambda: ended[0]):
                    pieces.append(piece)

            task = asyncio.create_task(reader())
            await asyncio.sleep(0.1)
            assert pieces == [b"first\n"]
            log.write("stdout", b"second\nno end")
            await asyncio.sleep(0.3)
            assert pieces == [b"first\n", b"second\n"]
            log.write("stdout", b" yet\n")
        ended[0] = True
        await asyncio.wait_for(task, 5)
        return pieces

    assert b"".join(asyncio.run(follow())) == b"first\nsecond\nno end yet\n"


def test_the_end_of_a_log_as_a_message(log: Path, tmp_path: Path) -> None:
    assert tail_text(log, 2, 100) == b"ng\nd\n"
    assert tail_text(log, 80, 3) == b"\nd\n"
    assert tail_text(tmp_path / "none", 80, 100) == b""
