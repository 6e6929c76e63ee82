"""What belongs to a state folder: workers in it, writers to it, those told of it; not readers, not ourselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.leftovers import processes_of

WAIT = "print('ready', flush=True); import time; time.sleep(600)"


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def start(text: str = WAIT, **options: object) -> int:
        one = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
        started.append(one)
        one.stdout.readline()
        return int(one.pid)

    yield start
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def test_whoever_works_writes_or_was_told(tmp_path: Path, spawn: object) -> None:
    state = tmp_path / "var"
    (state / "deep").mkdir(parents=True)
    log = state / "log"
    works = spawn(cwd=state / "deep")
    writes = spawn(f"keep = open({str(log)!r}, 'a'); {WAIT}")
    told = spawn(env={**os.environ, "TRAINYARD_STATE": str(state)})
    reads = spawn(f"keep = open({str(log)!r}); {WAIT}")
    other = spawn(env={**os.environ, "TRAINYARD_STATE": f"{state}2"}, cwd=tmp_path)
    found = set(processes_of(state))
    assert {works, writes, told} <= found
    assert not {reads, other} & found


def test_neither_we_nor_our_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert processes_of(tmp_path) == {}
