from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from local.kubelet import limits
from local.kubelet.limits import MemoryLimits, pss_bytes, rss_bytes, usage_over
from local.kubelet.processes import Process

MIB = 1 << 20


def process(name: str, pid: int, limit: int | None = None, group: str = "", group_limit: int | None = None) -> Process:
    made = Process(name, Path("/none"), lambda: None, pid=pid, memory_limit=limit, group=group, group_memory_limit=group_limit)
    return made


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """RSS and PSS by pid, without processes."""
    values: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(limits, "rss_bytes", lambda pid: values.get(pid, (0, 0))[0])
    monkeypatch.setattr(limits, "pss_bytes", lambda pid: values.get(pid, (0, 0))[1])
    monkeypatch.setattr(limits.proctree, "table", dict)
    monkeypatch.setattr(limits.proctree, "descendants", lambda roots, table: [root + 1000 for root in roots])
    return values


def look(*running: Process) -> tuple[bool, list[str]]:
    killed: list[str] = []
    return MemoryLimits(lambda: list(running), lambda each: killed.append(each.id)).look(), killed


def test_shared_pages_count_once(usage: dict[int, tuple[int, int]]) -> None:
    usage |= {1: (80 * MIB, 40 * MIB), 1001: (80 * MIB, 40 * MIB)}
    assert look(process("a", 1, 100 * MIB)) == (True, [])


def test_children_count(usage: dict[int, tuple[int, int]]) -> None:
    usage |= {1: (10 * MIB, 10 * MIB), 1001: (100 * MIB, 95 * MIB)}
    over = process("a", 1, 100 * MIB)
    assert look(over) == (True, ["a"])
    assert over.out_of_memory
    assert look(over) == (True, []), "killed once"


def test_only_what_is_over_its_own_limit(usage: dict[int, tuple[int, int]]) -> None:
    usage |= {1: (200 * MIB, 200 * MIB), 2: (200 * MIB, 200 * MIB)}
    assert look(process("a", 1, 100 * MIB), process("b", 2, 300 * MIB), process("c", 3)) == (True, ["a"])


def test_a_limit_on_the_pod_kills_its_largest_container(usage: dict[int, tuple[int, int]]) -> None:
    usage |= {1: (60 * MIB, 60 * MIB), 2: (70 * MIB, 70 * MIB), 3: (500 * MIB, 500 * MIB)}
    group = {"group": "u", "group_limit": 100 * MIB}
    running = [process("a", 1, **group), process("b", 2, **group), process("c", 3, group="v", group_limit=900 * MIB)]  # type: ignore[arg-type]
    assert look(*running) == (True, ["b"])


def test_nothing_is_looked_at_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.proctree, "table", lambda: pytest.fail("the process table was read"))
    assert look(process("a", 1)) == (False, [])


def test_pss_is_not_read_below_the_limit(usage: dict[int, tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    usage[1] = (50 * MIB, 50 * MIB)
    monkeypatch.setattr(limits, "pss_bytes", lambda pid: pytest.fail("PSS was read"))
    assert usage_over([1], 100 * MIB) is None


def test_real_memory() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "held = b'x' * (64 << 20); print('up', flush=True); import time; time.sleep(60)"], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert rss_bytes(child.pid) >= pss_bytes(child.pid) >= 64 * MIB
        assert (usage_over([child.pid], 32 * MIB) or 0) >= 64 * MIB
        assert usage_over([child.pid], 512 * MIB) is None
    finally:
        child.kill()
        child.communicate()
    deadline = time.monotonic() + 5
    while rss_bytes(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (rss_bytes(child.pid), pss_bytes(child.pid)) == (0, 0)
