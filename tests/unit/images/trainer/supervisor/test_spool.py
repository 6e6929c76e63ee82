"""The spool's bounds: memory, then disk, then a slower writer while S3 takes chunks, and loss that is said while it does not."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from trainer.supervisor.spool import Spool


def _spool(folder: Path, **bounds: float) -> Spool:
    settings = {"chunk_bytes": 10, "flush_s": 60, "memory_bytes": 20, "disk_bytes": 20, "stalled_s": 0.0, **bounds}
    return Spool(folder, **settings)  # type: ignore[arg-type]


def _drain(spool: Spool) -> list[tuple[int, bytes]]:
    spool.close()
    taken = []
    while chunk := spool.take():
        taken.append((chunk.number, chunk.read()))
        spool.shipped()
    return taken


def test_output_of_any_size_is_cut_into_full_chunks(tmp_path: Path) -> None:
    spool = _spool(tmp_path, memory_bytes=1000)
    for data in (b"abc", b"defghijklmnopqrstuvw", b"", b"xyz"):
        spool.append(data)
    assert _drain(spool) == [(0, b"abcdefghij"), (1, b"klmnopqrst"), (2, b"uvwxyz")]


def test_a_chunk_that_is_not_full_is_cut_when_it_has_waited(tmp_path: Path) -> None:
    spool = _spool(tmp_path, flush_s=0.05)
    spool.append(b"abc")
    chunk = spool.take()
    assert chunk is not None
    assert chunk.read() == b"abc"


def test_take_waits_for_output(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    taken: list[bytes] = []
    thread = threading.Thread(target=lambda: taken.extend(data for _, data in _drain_open(spool)))
    thread.start()
    time.sleep(0.05)
    spool.append(b"0123456789")
    spool.close()
    thread.join(10)
    assert taken == [b"0123456789"]


def _drain_open(spool: Spool) -> list[tuple[int, bytes]]:
    taken = []
    while chunk := spool.take():
        taken.append((chunk.number, chunk.read()))
        spool.shipped()
    return taken


def test_a_chunk_stays_first_until_it_is_shipped(tmp_path: Path) -> None:
    spool = _spool(tmp_path)
    spool.append(b"0123456789" * 2)
    assert spool.take() is spool.take()
    spool.shipped()
    chunk = spool.take()
    assert chunk is not None
    assert chunk.number == 1


def test_what_does_not_fit_in_memory_lies_on_disk_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = _spool(folder)
    data = b"".join(b"chunk %d..." % i for i in range(4))
    spool.append(data)
    assert sorted(path.name for path in folder.iterdir()) == ["00000002.log", "00000003.log"]
    assert spool.backlog == 40
    assert b"".join(chunk for _, chunk in _drain(spool)) == data
    assert list(folder.iterdir()) == []
    assert spool.lost == 0
    assert spool.backlog == 0


def test_what_fits_nowhere_is_lost_and_the_log_says_how_much(tmp_path: Path) -> None:
    spool = _spool(tmp_path / "spool", chunk_bytes=100, memory_bytes=200, disk_bytes=200)
    for i in range(7):
        spool.append(b"%d" % i * 100)
    assert spool.lost == 300
    for _ in range(3):
        spool.take()
        spool.shipped()
    spool.append(b"7" * 100)
    note = b"\n[supervisor] 300 bytes of the log are lost here: S3 did not answer and the spool was full\n"
    assert _drain(spool) == [(3, b"3" * 100), (4, note + b"7" * 100)]


def test_a_full_disk_is_a_full_spool(tmp_path: Path) -> None:
    blocker = tmp_path / "spool"
    blocker.write_text("a file where the folder should be")
    spool = _spool(blocker)
    spool.append(b"0123456789" * 3)
    assert spool.lost == 10
    assert len(_drain(spool)) == 2


def test_a_writer_faster_than_s3_is_slowed_down_and_loses_nothing(tmp_path: Path) -> None:
    spool = _spool(tmp_path / "spool", stalled_s=60)
    data = b"".join(b"chunk %04d" % i for i in range(300))
    taken: list[bytes] = []

    def ship() -> None:
        while chunk := spool.take():
            time.sleep(0.001)
            taken.append(chunk.read())
            spool.shipped()

    thread = threading.Thread(target=ship)
    thread.start()
    spool.append(data)
    spool.close()
    thread.join(60)
    assert b"".join(taken) == data
    assert spool.lost == 0


@pytest.mark.parametrize("size", [1, 1000])
def test_one_chunk_is_kept_however_small_the_memory(tmp_path: Path, size: int) -> None:
    spool = _spool(tmp_path / "spool", chunk_bytes=size, memory_bytes=0, disk_bytes=0)
    spool.append(b"x" * size)
    assert spool.lost == 0
    assert _drain(spool) == [(0, b"x" * size)]
