"""What a cluster is made of: its nodes, addresses, ports and names, all from one set of options; nothing is started here."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from local.stack.events import StackError

MASTER = "kube-master"
PORTS = {"kube_apiserver": 6443, "registry": 5000, "kube_controller_manager": 10257, "kube_scheduler": 10259}
"""Kubernetes' own ports. The registry's is also part of the images' names: localhost:5000/NAME."""
SUBNET, PODS, SERVICES = IPv4Network("172.31.254.0/24"), IPv4Network("10.245.0.0/16"), IPv4Network("10.98.0.0/16")
MOST_NODES = 99
LONGEST_BRIDGE = 9
"""Characters: a node's cable is named after the bridge (`ty0-n12`), and Linux takes 15 for an interface."""


@dataclass(frozen=True)
class Node:
    """One node: `index` counts from 1."""

    index: int
    name: str
    address: IPv4Address
    cable: str
    """The interface on the machine's side that joins the node to the bridge."""
    cgroup: str
    """The node's cgroup, below the root of the hierarchy, without a leading slash."""


@dataclass(frozen=True)
class Plan:
    """One cluster. Two of different `bridge`, networks and ports can be up side by side."""

    nodes: int = 2
    cpus: float | None = None
    """What each node offers; None: all that the machine has."""
    memory: float | None = None
    """GiB that each node offers; None: all that the machine has."""
    bridge: str = "ty0"
    subnet: IPv4Network = SUBNET
    """Of the master (.1) and the nodes (.11 …)."""
    pods: IPv4Network = PODS
    """Each node takes a /24 of it."""
    services: IPv4Network = SERVICES
    ports: dict[str, int] = field(default_factory=lambda: dict(PORTS))
    fsync: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise StackError(f"--nodes {self.nodes}: expected 1 to {MOST_NODES}")
        total_cpus, total_memory = os.cpu_count() or 1, machine_memory() / 2**30
        if self.cpus is not None and not 0 < self.cpus <= total_cpus:
            raise StackError(f"--cpus {self.cpus:g}: expected more than 0 and at most the machine's {total_cpus}: a node offers that")
        if self.memory is not None and not 0 < self.memory <= total_memory:
            raise StackError(
                f"--memory {self.memory:g}: expected GiB, more than 0 and at most the machine's {total_memory:.1f}: a node offers that"
            )
        if not self.bridge.isalnum() or not self.bridge.isascii() or len(self.bridge) > LONGEST_BRIDGE:
            raise StackError(f"--bridge {self.bridge}: expected letters and digits, at most {LONGEST_BRIDGE} of them, as in --bridge ty1")
        for option, network, longest in (("--subnet", self.subnet, 24), ("--pods", self.pods, 17), ("--services", self.services, 24)):
            if network.prefixlen > longest:
                raise StackError(f"{option} {network}: too small: expected a prefix of /{longest} or shorter")
        networks = {"--subnet": self.subnet, "--pods": self.pods, "--services": self.services}
        names = list(networks)
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                if networks[one].overlaps(networks[other]):
                    raise StackError(f"{one} {networks[one]} and {other} {networks[other]} overlap: choose another for one of them")
        if self.nodes > 2 ** (24 - self.pods.prefixlen):
            raise StackError(f"--pods {self.pods} holds {2 ** (24 - self.pods.prefixlen)} nodes, not {self.nodes}: choose a shorter prefix")

    # ------------------------------------------------------------------------------------------------------- addresses
    @property
    def master(self) -> IPv4Address:
        """The machine's own address in the cluster's network."""
        return self.subnet.network_address + 1

    @property
    def server(self) -> str:
        return f"https://{self.master}:{self.ports['kube_apiserver']}"

    @property
    def kubernetes_service(self) -> IPv4Address:
        """Where pods find the API server."""
        return self.services.network_address + 1

    @property
    def dns(self) -> IPv4Address:
        return self.services.network_address + 10

    @property
    def registry(self) -> str:
        """As images are named: what a person pushes and a node pulls."""
        return f"localhost:{self.ports['registry']}"

    def all_nodes(self) -> list[Node]:
        return [self.node(index) for index in range(1, self.nodes + 1)]

    def node(self, index: int) -> Node:
        name = f"kube-node{index}"
        return Node(index, name, self.subnet.network_address + 10 + index, f"{self.bridge}-n{index}", f"{self.bridge}-{name}")

    def named(self, name: str) -> Node:
        """The node of this name. Raises StackError naming those that there are."""
        for node in self.all_nodes():
            if node.name == name:
                return node
        raise StackError(f"there is no node {name!r}: the nodes are {', '.join(node.name for node in self.all_nodes())}")

    # ------------------------------------------------------------------------------------------------------------ JSON
    def document(self) -> dict[str, Any]:
        """For state.json."""
        value = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: str(one) if isinstance(one, IPv4Network) else one for name, one in value.items()}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Plan:
        """The plan that `document` was. Raises StackError when it is none."""
        try:
            networks = {name: IPv4Network(document[name]) for name in ("subnet", "pods", "services")}
            return cls(**{**document, **networks})
        except (KeyError, TypeError, ValueError) as error:
            raise StackError(f"the cluster's plan in state.json cannot be read ({error}): was it written by another version?") from error


def network(option: str, text: str) -> IPv4Network:
    """`172.31.254.0/24` as a network; raises StackError naming the option."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError as error:
        raise StackError(f"{option} {text}: {error}; expected a network as in {option} 172.31.254.0/24") from error
    if not isinstance(found, IPv4Network):
        raise StackError(f"{option} {text}: IPv4 only, as in {option} 172.31.254.0/24")
    return found


def port_numbers(overrides: list[str]) -> dict[str, int]:
    """The ports with `NAME=N` put in. Raises StackError."""
    ports = dict(PORTS)
    for text in overrides:
        name, equals, number = text.partition("=")
        if name not in ports or not equals:
            raise StackError(f"--port {text}: expected NAME=NUMBER with a name of {', '.join(PORTS)}, as in --port registry=5001")
        if not number.isdigit() or not 1 <= int(number) <= 65535:
            raise StackError(f"--port {text}: {number!r} is no port")
        ports[name] = int(number)
    twice = {number for number in ports.values() if list(ports.values()).count(number) > 1}
    if twice:
        raise StackError(f"port {min(twice)} is given to {' and '.join(n for n, p in ports.items() if p == min(twice))}: choose another")
    return ports


def machine_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
