"""`python -m local.threenode` where nothing is to be started: what is refused, in how many lines, and that it leaves no folder behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local.stack.daemon import hold
from local.threenode import __main__ as program
from local.threenode import needs, programs
from local.threenode.layout import ClusterState
from local.threenode.plan import Plan


@pytest.fixture(autouse=True)
def _root_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were root's, on a machine with all packages; nothing here goes so far as to need either."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "missing_packages", lambda: [])
    monkeypatch.setattr(needs, "check_kernel", lambda: None)


def test_without_root_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folder = tmp_path / "cluster"
    assert program.main(["up", "--state", str(folder)]) == 1
    said = "`trainyard cluster up` needs root, for namespaces, mounts and network interfaces: run it with sudo\n"
    assert capsys.readouterr().err == said
    assert not folder.exists()


def test_missing_packages_are_told_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs, "missing_packages", lambda: ["ipset"])
    monkeypatch.setattr(programs, "ensure", lambda reporter: pytest.fail("it compiles"))
    assert program.main(["up", "--state", str(tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    message = json.loads(captured.out)["message"]
    assert message.startswith("not installed: ipset.")
    assert captured.err == message + "\n"


@pytest.mark.parametrize(("phase", "doing"), [("starting", "being started"), ("stopping", "being stopped")])
def test_while_another_has_the_folder_it_says_what_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], phase: str, doing: str
) -> None:
    state = ClusterState.at(tmp_path)
    lock = hold(state)
    assert lock is not None
    state.write({"phase": phase, "plan": Plan().document()})
    try:
        assert program.main(["up", "--state", str(tmp_path)]) == 3
    finally:
        lock.release()
    said = f"the cluster in {tmp_path} is {doing} by pid {os.getpid()}: wait for it, then look with `trainyard cluster status`\n"
    assert capsys.readouterr().err == said


def test_up_with_another_plan_is_refused_with_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ClusterState.at(tmp_path)
    lock = hold(state)
    assert lock is not None
    state.write({"phase": "up", "plan": Plan(cpus=1.0).document(), "kubeconfig": "/there", "registry": "localhost:5000"})
    try:
        assert program.main(["up", "--state", str(tmp_path), "--cpus", "1", "--memory", "0.5"]) == 1
        assert "is up with another plan (memory is None, not 0.5): `trainyard cluster down` first" in capsys.readouterr().err
        assert program.main(["up", "--state", str(tmp_path), "--cpus", "1"]) == 0
        assert "export KUBECONFIG=/there" in capsys.readouterr().out
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up", "--nodes", "0"], "--nodes 0: expected 1 to 99"),
        (["up", "--pods", "10.0.0.1/16"], "--pods 10.0.0.1/16: "),
        (["up", "--port", "web=1"], "--port web=1: "),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert program.main([*words, "--state", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(said)
    assert error.count("\n") == 1


def test_where_there_never_was_a_cluster_no_folder_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cluster"
    assert program.main(["status", "--state", str(folder), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["phase"] == "down"
    assert program.main(["down", "--state", str(folder)]) == 0
    for words in (["cut", "kube-node1"], ["node-down", "kube-node1"]):
        assert program.main([*words, "--state", str(folder)]) == 1
        assert capsys.readouterr().err == f"the cluster in {folder} is not up: `trainyard cluster up`\n"
    assert not folder.exists()


def test_the_folder_is_the_environments_where_no_option_says_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINYARD_THREENODE", str(tmp_path / "there"))
    assert program.parser().parse_args(["status"]).state == tmp_path / "there"
    monkeypatch.delenv("TRAINYARD_THREENODE")
    assert str(program.parser().parse_args(["status"]).state) == "/var/lib/trainyard/threenode"
