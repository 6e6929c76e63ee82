"""What is said where the machine lacks something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local.stack.events import StackError
from local.threenode import needs


def plugins(folder: Path) -> tuple[Path, ...]:
    for name in needs.CNI_PROGRAMS:
        (folder / name).touch()
    return (folder,)


def test_every_missing_package_is_named_once(tmp_path: Path) -> None:
    absent = {"containerd", "ctr", "ipset"}
    found = needs.missing_packages(lambda name: None if name in absent else f"/usr/bin/{name}", plugins(tmp_path))
    assert found == ["containerd", "ipset"]


def test_plugins_without_one_of_them_are_a_missing_package(tmp_path: Path) -> None:
    folders = plugins(tmp_path)
    assert needs.missing_packages(lambda name: name, folders) == []
    (tmp_path / "portmap").unlink()
    assert needs.missing_packages(lambda name: name, folders) == ["containernetworking-plugins"]
    assert needs.cni_folder(folders) is None


def test_the_message_has_the_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "missing_packages", lambda: ["conntrack", "ipset"])
    with pytest.raises(StackError) as error:
        needs.check_packages()
    assert str(error.value) == (
        "not installed: conntrack, ipset. On Debian or Ubuntu: apt-get update && apt-get install -y --no-install-recommends conntrack ipset"
    )


def test_without_root_it_says_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match=r"`trainyard cluster up` needs root, .*: run it with sudo"):
        needs.check_root("`trainyard cluster up`")


def test_controllers_of_version_1(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    with pytest.raises(StackError, match="has no controller pids"):
        needs.check_kernel(tmp_path)


def test_controllers_of_version_2(tmp_path: Path) -> None:
    file = tmp_path / "cgroup.controllers"
    file.write_text("cpuset cpu io memory hugetlb pids rdma misc\n")
    needs.check_kernel(tmp_path)
    file.write_text("")
    with pytest.raises(StackError, match="has no controller cpu, memory, pids"):
        needs.check_kernel(tmp_path)
