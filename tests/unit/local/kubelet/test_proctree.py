from __future__ import annotations

import os
import subprocess
import sys

from local.kubelet import proctree
from local.kubelet.proctree import Process


def test_a_command_with_spaces_and_parentheses_in_its_name() -> None:
    text = "17 (a) b (c) S 5 17 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 8812 0 0 18446744073709551615"
    assert proctree.parse_stat(text) == Process(pid=17, parent=5, session=9, started=8812, zombie=False)


def test_descendants_over_generations_without_roots_and_zombies() -> None:
    def process(pid: int, parent: int, zombie: bool = False) -> Process:
        return Process(pid, parent, pid, 0, zombie)

    table = {
        item.pid: item for item in (process(1, 0), process(2, 1), process(3, 2), process(4, 3), process(5, 2, zombie=True), process(6, 1))
    }
    assert sorted(proctree.descendants([2], table)) == [3, 4]
    assert proctree.descendants([4], table) == []
    assert sorted(proctree.descendants([1], table)) == [2, 3, 4, 6]


def test_the_real_table_knows_a_child_and_forgets_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        found = proctree.read(child.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert child.pid in proctree.descendants([os.getpid()], proctree.table())
    finally:
        child.kill()
        child.wait()
    assert proctree.read(child.pid) is None
