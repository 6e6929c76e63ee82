"""Addresses and names of a cluster, and options that make none."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest

from local.stack.events import StackError
from local.threenode.plan import LONGEST_BRIDGE, MOST_NODES, PORTS, Plan, network, port_numbers

LONGEST_INTERFACE = 15  # linux/if.h: IFNAMSIZ less the final zero


def test_all_addresses_come_from_the_networks() -> None:
    plan = Plan(nodes=2)
    assert (str(plan.master), plan.server) == ("172.31.254.1", "https://172.31.254.1:6443")
    assert [(node.name, str(node.address)) for node in plan.all_nodes()] == [
        ("kube-node1", "172.31.254.11"),
        ("kube-node2", "172.31.254.12"),
    ]
    assert (str(plan.kubernetes_service), str(plan.dns), plan.registry) == ("10.98.0.1", "10.98.0.10", "localhost:5000")


def test_two_clusters_of_different_options_share_no_name_and_no_address() -> None:
    one, other = Plan(), Plan(bridge="ty1", subnet=IPv4Network("172.31.253.0/24"))
    assert not {(n.cable, n.cgroup, n.address) for n in one.all_nodes()} & {(n.cable, n.cgroup, n.address) for n in other.all_nodes()}
    assert one.master != other.master


def test_every_interface_has_a_name_that_linux_takes_and_every_node_an_address() -> None:
    plan = Plan(nodes=MOST_NODES, bridge="b" * LONGEST_BRIDGE)
    assert max(len(node.cable) for node in plan.all_nodes()) <= LONGEST_INTERFACE
    assert all(node.address in plan.subnet for node in plan.all_nodes())
    assert len({node.address for node in plan.all_nodes()} | {plan.master}) == MOST_NODES + 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": 0}, "--nodes 0: expected 1 to 99"),
        ({"nodes": 100}, "--nodes 100: expected 1 to 99"),
        ({"cpus": 0.0}, "--cpus 0: expected more than 0 and at most the machine's"),
        ({"cpus": 100000.0}, "--cpus 100000: "),
        ({"memory": 1e6}, r"--memory 1e\+06: expected GiB"),
        ({"bridge": "ty-0"}, "--bridge ty-0: expected letters and digits, at most 9"),
        ({"bridge": "abcdefghij"}, "--bridge abcdefghij: "),
        ({"bridge": ""}, "--bridge : "),
        ({"subnet": IPv4Network("10.0.0.0/28")}, "--subnet 10.0.0.0/28: too small"),
        ({"subnet": IPv4Network("10.245.7.0/24")}, r"--subnet 10.245.7.0/24 and --pods 10.245.0.0/16 overlap"),
        ({"services": IPv4Network("10.244.0.0/15")}, "--pods 10.245.0.0/16 and --services 10.244.0.0/15 overlap"),
    ],
)
def test_what_makes_no_cluster_is_refused_by_its_option(options: dict[str, Any], said: str) -> None:
    with pytest.raises(StackError, match=said) as error:
        Plan(**options)
    assert "\n" not in str(error.value)


def test_a_plan_comes_back_from_its_document() -> None:
    plan = Plan(nodes=3, cpus=1.0, memory=0.5, ports={**PORTS, "registry": 5001}, fsync=False)
    assert Plan.of(plan.document()) == plan


def test_a_document_of_another_version_is_one_line() -> None:
    with pytest.raises(StackError, match=r"cannot be read .*another version"):
        Plan.of({"nodes": 2, "colour": "red"})


def test_a_node_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(StackError, match="there is no node 'kube-node3': the nodes are kube-node1, kube-node2"):
        Plan().named("kube-node3")


@pytest.mark.parametrize(
    ("text", "said"), [("10.0.0.1/24", "host bits"), ("x", "expected a network as in --pods"), ("fd00::/64", "IPv4 only")]
)
def test_a_network_that_is_none(text: str, said: str) -> None:
    with pytest.raises(StackError, match=said):
        network("--pods", text)


def test_ports_by_name() -> None:
    assert port_numbers(["registry=5001"]) == {**PORTS, "registry": 5001}


@pytest.mark.parametrize("text", ["registry", "web=80", "registry=x", "registry=0", "registry=65536", "registry=6443"])
def test_ports_that_are_none(text: str) -> None:
    with pytest.raises(StackError, match="port"):
        port_numbers([text])
