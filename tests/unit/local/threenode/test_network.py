"""The machine's side of the network: what may not overlap, and which rules there are. That they work is shown by the cluster's own test."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from local.stack.events import StackError
from local.threenode import cgroups, network, resolving
from local.threenode.cleaning import remove_leftovers
from local.threenode.layout import ClusterState
from local.threenode.plan import Plan

FOLDER = Path("/var/lib/trainyard/threenode")


def link(address: str, length: int) -> dict[str, Any]:
    return {
        "addr_info": [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}, {"family": "inet", "local": address, "prefixlen": length}]
    }


def machine(monkeypatch: pytest.MonkeyPatch, **links: dict[str, Any]) -> None:
    monkeypatch.setattr(network, "links", lambda: links)
    monkeypatch.setattr(network, "INTERFACES", Path("/nowhere"))  # a cluster may be up while this is tested


def test_a_network_that_the_machine_is_in_already_is_refused_by_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, lo=link("127.0.0.1", 8), eth0=link("10.245.3.9", 16))
    with pytest.raises(
        StackError, match=r"--pods 10.245.0.0/16 overlaps with 10.245.0.0/16, which interface eth0 has: choose another by --pods"
    ):
        network.check_free(Plan(), FOLDER)


def test_networks_beside_others_and_its_own_bridge_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, docker0=link("172.17.0.1", 16), rk0=link("172.31.255.1", 24), ty0=link("172.31.254.1", 24))
    network.check_free(Plan(), FOLDER)
    with pytest.raises(StackError, match="interface ty0 has"):
        network.check_free(Plan(bridge="ty1"), FOLDER)


def test_a_bridge_of_another_cluster_is_refused_and_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, ty0=link("172.31.254.1", 24))
    monkeypatch.setattr(network, "INTERFACES", tmp_path)
    alias = tmp_path / "ty0" / "ifalias"
    alias.parent.mkdir()
    alias.write_text(f"trainyard cluster in {FOLDER}\n")
    network.check_free(Plan(), FOLDER)
    state, taken = ClusterState.at(tmp_path / "other"), []
    with pytest.raises(StackError, match=f"ty0 is of the cluster in {FOLDER}: `trainyard cluster down --state {FOLDER}` first, or"):
        network.check_free(Plan(), state.root)
    monkeypatch.setattr(network, "remove", lambda plan: taken.append(plan) or [])
    monkeypatch.setattr(cgroups, "remove", lambda node: taken.append(node) or 0)
    remove_leftovers(state, Plan())
    assert taken == []
    alias.write_text(f"trainyard cluster in {state.root}\n")
    remove_leftovers(state, Plan())
    assert taken == [Plan(), *Plan().all_nodes()]


def test_every_rule_names_its_cluster_so_that_no_other_is_taken_away() -> None:
    one, other = network.rules(Plan()), network.rules(Plan(bridge="ty1", subnet=IPv4Network("172.31.253.0/24")))
    assert all("trainyard ty0" in rule for rule in one)
    assert not set(one) & set(other)
    assert {rule[:2] for rule in one} == {("filter", "FORWARD"), ("nat", "POSTROUTING")}


def test_a_node_that_is_off_has_no_cable(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, ty0=link("172.31.254.1", 24), **{"ty0-n2": {"flags": ["BROADCAST"]}})
    one, other = Plan().all_nodes()
    assert (network.is_plugged(one), network.is_plugged(other)) == (None, False)
    with pytest.raises(StackError, match=r"kube-node1 is off: .*node-up kube-node1"):
        network.set_cable(one, plugged=False)


def test_what_a_tool_says_is_told() -> None:
    with pytest.raises(StackError, match=r"`ls /no/such/place` failed: .*No such file"):
        network.run("ls", "/no/such/place")
    with pytest.raises(StackError, match="`no-such-tool` cannot be run"):
        network.run("no-such-tool")


# ------------------------------------------------------------------------------------------------------------- name servers
@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["search x\nnameserver 192.0.2.53\n# nameserver 192.0.2.54\nnameserver 192.0.2.53\n"], ["192.0.2.53"]),
        (["nameserver 127.0.0.53\n", "nameserver 192.0.2.1\nnameserver 192.0.2.2\n"], ["192.0.2.1", "192.0.2.2"]),
        (["nameserver 127.0.0.53\nnameserver fe80::1%eth0\n"], []),
        (["nameserver\nnameserver x\n"], []),
        (["".join(f"nameserver 192.0.2.{one}\n" for one in range(1, 6))], ["192.0.2.1", "192.0.2.2", "192.0.2.3"]),
        ([], []),
    ],
)
def test_name_servers_that_pods_can_reach(tmp_path: Path, texts: list[str], found: list[str]) -> None:
    files = []
    for index, text in enumerate(texts):
        files.append(tmp_path / str(index))
        files[-1].write_text(text)
    assert resolving.upstream((*files, tmp_path / "absent")) == found
