"""Where a node's cgroups are made and how they go, on folders that look like a hierarchy of version 1 or 2."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from local.stack.events import StackError
from local.threenode import cgroups
from local.threenode.plan import Plan

NODE = Plan().node(1)


def version_1(root: Path) -> Path:
    for name in ("cpu,cpuacct", "memory", "cpuset"):
        (root / name).mkdir()
        for file in ("cgroup.procs", "tasks"):
            (root / name / file).touch()
    (root / "cpu").symlink_to("cpu,cpuacct")
    (root / "cpuset" / "cpuset.cpus").write_text("0-3\n")
    return root


def test_version_1_has_one_for_each_controller_and_none_for_a_link(tmp_path: Path) -> None:
    cgroups.make(NODE, version_1(tmp_path))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob(f"*/{NODE.cgroup}") if not path.parent.is_symlink()) == [
        "cpu,cpuacct/ty0-kube-node1",
        "cpuset/ty0-kube-node1",
        "memory/ty0-kube-node1",
    ]


def test_version_2_has_one(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory io pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    (tmp_path / "other.slice").mkdir()
    cgroups.make(NODE, tmp_path)
    assert (tmp_path / NODE.cgroup).is_dir()
    assert not (tmp_path / "other.slice" / NODE.cgroup).exists()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"  # what the kernel would add to the two


def test_they_go_with_all_below_them_and_nobody_elses(tmp_path: Path) -> None:
    hierarchy = version_1(tmp_path)
    other = Plan().node(2)
    for node in (NODE, other):
        cgroups.make(node, hierarchy)
    (hierarchy / "memory" / NODE.cgroup / "kubepods" / "pod1").mkdir(parents=True)
    assert cgroups.remove(NODE, hierarchy) == 5
    assert [path.name for path in hierarchy.glob("*/*kube-node*") if not path.parent.is_symlink()] == [other.cgroup] * 3
    assert cgroups.remove(NODE, hierarchy) == 0


def test_one_that_is_busy_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    hierarchy = version_1(tmp_path)
    cgroups.make(NODE, hierarchy)
    busy = hierarchy / "memory" / NODE.cgroup / "busy"  # a file keeps a folder, as a process does a cgroup
    busy.touch()

    def end() -> None:
        time.sleep(0.3)
        busy.unlink()

    thread = threading.Thread(target=end)
    thread.start()
    cgroups.remove(NODE, hierarchy)
    thread.join()
    assert not (hierarchy / "memory" / NODE.cgroup).exists()


def test_one_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy = version_1(tmp_path)
    cgroups.make(NODE, hierarchy)
    (hierarchy / "memory" / NODE.cgroup / "busy").touch()
    monkeypatch.setattr(cgroups, "GONE_WITHIN_S", 0.2)
    with pytest.raises(StackError, match=r"the cgroup .*/memory/ty0-kube-node1 does not go"):
        cgroups.remove(NODE, hierarchy)
