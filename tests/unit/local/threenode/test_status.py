"""What is said of parts that are not well, from the files that they leave."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local.stack.events import StackError
from local.threenode import cleaning, status
from local.threenode.layout import ClusterState
from local.threenode.plan import Plan

PLAN = Plan()
NODE = PLAN.node(1)
WELL = {"state": "running", "restarts": 0, "exit_code": None}


@pytest.fixture
def state(tmp_path: Path) -> ClusterState:
    return ClusterState.at(tmp_path)


def say(state: ClusterState, **programs: dict[str, object]) -> None:
    state.report(NODE).write_text(json.dumps(programs))


def test_a_node_that_never_spoke_is_explained_by_its_machines_log(state: ClusterState) -> None:
    (state.logs / "kube-node1.log").write_text("machine: kube-node1: no bridge\n\n")
    assert status.trouble(state, NODE) == (
        f"kube-node1 did not start: log: {state.logs}/kube-node1.log; its end: machine: kube-node1: no bridge"
    )


@pytest.mark.parametrize("ill", [{"state": "ended", "restarts": 1, "exit_code": 3}, {"state": "running", "restarts": 4, "exit_code": 3}])
def test_a_program_that_keeps_ending_is_named_with_the_end_of_its_log(state: ClusterState, ill: dict[str, object]) -> None:
    say(state, containerd=WELL, kubelet=ill)
    (state.logs / "kube-node1.kubelet.log").write_text("one\ntwo\nthree\nfailed to run Kubelet: swap\n")
    said = status.trouble(state, NODE)
    assert said.startswith(f"kubelet of kube-node1 has ended with 3 ({ill['restarts']} restarts): log: ")
    assert said.endswith("its end: two | three | failed to run Kubelet: swap")


def test_nothing_is_said_of_a_node_that_is_well(state: ClusterState) -> None:
    say(
        state,
        containerd=WELL,
        load={"state": "done", "restarts": 1, "exit_code": 0},
        flannel={"state": "waiting", "restarts": 0, "exit_code": None},
    )
    assert status.trouble(state, NODE) == ""


@pytest.mark.parametrize(
    ("states", "well"),
    [(["running", "done"], True), (["running", "waiting"], False), (["ended"], False), ([], False)],
)
def test_a_node_is_well_when_every_program_is(state: ClusterState, states: list[str], well: bool) -> None:
    say(state, **{f"program{index}": {"state": one} for index, one in enumerate(states)})
    assert status.all_well(status.programs(state, NODE)) is well


def test_the_newest_log_of_a_pod_is_its_trouble(state: ClusterState) -> None:
    assert status.pod_trouble(state, "kube-system_coredns") == ""
    for age, name in ((60, "kube-system_coredns-1_uid"), (0, "kube-system_coredns-2_uid"), (0, "other_pod_uid")):
        folder = state.node(NODE).log / "pods" / name / "coredns"
        folder.mkdir(parents=True)
        (folder / "0.log").write_text(f"{name} says so\n")
        when = (folder / "0.log").stat().st_mtime - age
        os.utime(folder / "0.log", (when, when))
    assert status.pod_trouble(state, "kube-system_coredns").endswith("its end: kube-system_coredns-2_uid says so")


def test_a_cluster_whose_starter_is_dead_is_down_whatever_its_file_says(state: ClusterState) -> None:
    state.write({"phase": "up", "plan": PLAN.document(), "components": {"etcd": {"state": "running", "restarts": 0}}})
    (state.run / "starter.json").write_text(json.dumps({"pid": 2**22 + 1, "started": 1}))
    assert status.collect(state) == {"phase": "down", "state_dir": str(state.root), "parts": [], "nodes": [], "left_over": []}


def test_the_plan_of_a_cluster_that_never_was_is_none_and_a_torn_one_is_told(state: ClusterState) -> None:
    assert cleaning.plan_of(state) is None
    state.write({"plan": PLAN.document()})
    assert cleaning.plan_of(state) == PLAN
    state.write({"plan": {"nodes": 2}})
    with pytest.raises(StackError, match=r"plan in state\.json cannot be read"):
        cleaning.plan_of(state)


def test_down_forgets_objects_and_disks_and_keeps_images(state: ClusterState) -> None:
    for path in (state.etcd, state.nodes / "kube-node1", state.registry / "docker", state.keys):
        path.mkdir(parents=True, exist_ok=True)
    cleaning.forget(state)
    assert (state.etcd.exists(), state.nodes.exists()) == (False, False)
    assert (state.registry / "docker").exists()
    assert state.keys.exists()
    cleaning.forget(state, everything=True)
    assert not state.root.exists()
