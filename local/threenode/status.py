"""How well a cluster is: its parts one by one, asked afresh; for `status`, and for the message of a start that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from local.stack import processes
from local.threenode import network
from local.threenode.api import Api, is_ready
from local.threenode.cleaning import plan_of
from local.threenode.keys import Keys
from local.threenode.layout import ClusterState
from local.threenode.plan import MASTER, Node, Plan

STARTING_RESTARTS = 3
"""A program of a node that was started again this often is worth a word."""


@dataclass(frozen=True)
class Part:
    """One program."""

    machine: str
    name: str
    state: str
    restarts: int
    well: bool


@dataclass(frozen=True)
class NodeState:
    name: str
    address: str
    ready: bool
    power: bool
    cable: bool
    """Plugged in."""
    pods: int | None
    """As far as the API server knows; None where it does not answer."""
    cpu: str | None = None
    memory: str | None = None


def programs(state: ClusterState, node: Node) -> dict[str, dict[str, Any]]:
    """What the node's first process says of its programs: name -> state, restarts, exit_code. {} where it said nothing yet."""
    try:
        value = json.loads(state.report(node).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def all_well(programs: Mapping[str, Mapping[str, Any]]) -> bool:
    """Every program runs, or is done if it is to end; not when nothing is known of any."""
    return bool(programs) and all(one["state"] in ("running", "done") for one in programs.values())


def trouble(state: ClusterState, node: Node) -> str:
    """One sentence about the first program of the node that is not well, with the end of its log; '' where all are."""
    found = programs(state, node)
    if not found:
        return f"{node.name} did not start: {end_of(state.logs / f'{node.name}.log')}"
    for name, one in found.items():
        if one["state"] == "ended" or one["restarts"] >= STARTING_RESTARTS:
            log = state.logs / f"{node.name}.{name}.log"
            return f"{name} of {node.name} has ended with {one['exit_code']} ({one['restarts']} restarts): {end_of(log)}"
    return ""


def pod_trouble(state: ClusterState, prefix: str) -> str:
    """The end of the newest log of a container whose pod's `namespace_name` begins with `prefix`; '' where it has none."""
    logs = sorted(state.nodes.glob(f"*/log/pods/{prefix}*/*/*.log"), key=lambda path: path.stat().st_mtime)
    return end_of(logs[-1]) if logs else ""


def end_of(log: Path, lines: int = 3) -> str:
    """Where the log is and its last lines, on one line."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return f"log: {log}"
    kept = [line.strip()[:300] for line in text.splitlines() if line.strip()][-lines:]
    return f"log: {log}" + (f"; its end: {' | '.join(kept)}" if kept else "")


def collect(state: ClusterState) -> dict[str, Any]:
    """Everything about the cluster of this folder, as one document. Raises StackError when its files cannot be read."""
    value = state.read()
    plan = plan_of(state)
    up = state.starter() is not None
    document: dict[str, Any] = {
        "phase": value.get("phase", "down") if up else "down",
        "state_dir": str(state.root),
        "parts": [],
        "nodes": [],
    }
    if not up:
        document["left_over"] = processes.left_over(state.run)
        return document
    if plan is None:
        return document
    api = Api(plan.server, Keys(state.keys))
    answers = state.kubeconfig.exists() and api.ready()
    pods = _pods(api) if answers else None
    nodes = [_node(api, plan, node, set(value.get("off", [])), pods, answers) for node in plan.all_nodes()]
    document |= {
        "kubeconfig": value.get("kubeconfig"),
        "server": plan.server,
        "registry": plan.registry,
        "kubernetes_answers": answers,
        "nodes": [asdict(one) for one in nodes],
        "parts": [asdict(one) for one in _parts(state, plan, value)],
    }
    document["well"] = (
        document["phase"] == "up" and answers and all(one.ready for one in nodes) and all(p["well"] for p in document["parts"])
    )
    return document


def _pods(api: Api) -> dict[str, int] | None:
    """Node -> pods that have not ended."""
    try:
        items = api.request("GET", "/api/v1/pods").get("items", [])
    except (OSError, ValueError):
        return None
    count: dict[str, int] = {}
    for pod in items:
        node = pod.get("spec", {}).get("nodeName")
        if node and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            count[node] = count.get(node, 0) + 1
    return count


def _node(api: Api, plan: Plan, node: Node, off: set[str], pods: dict[str, int] | None, answers: bool) -> NodeState:
    found = (api.node(node.name) if answers else None) or {}
    offers = found.get("status", {}).get("allocatable", {})
    plugged = network.is_plugged(node)
    count = pods.get(node.name, 0) if pods is not None else None
    ready = bool(found) and is_ready(found) and node.name not in off
    return NodeState(
        node.name, str(node.address), ready, plugged is not None, bool(plugged), count, offers.get("cpu"), offers.get("memory")
    )


def _parts(state: ClusterState, plan: Plan, value: dict[str, Any]) -> list[Part]:
    nodes = {node.name: node for node in plan.all_nodes()}
    found = []
    for name, one in value.get("components", {}).items():
        if name not in nodes:
            found.append(Part(MASTER, name, one["state"], one["restarts"], one["state"] == "running"))
            continue
        for program, said in programs(state, nodes[name]).items():
            found.append(Part(name, program, said["state"], said["restarts"], said["state"] in ("running", "done")))
    return found
