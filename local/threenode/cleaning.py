"""Takes away what a cluster has left on the machine, by what its folder says of it, whether its starter lives or not.

The kernel has done most of it: with a node's first process go its processes, mounts, interfaces and network namespaces (machine.py). Left
are the machine's own bridge, rules and cgroups.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field

from local.stack import processes
from local.stack.events import StackError
from local.threenode import cgroups, network
from local.threenode.layout import ClusterState
from local.threenode.plan import Plan


@dataclass(frozen=True)
class Removed:
    """What there was."""

    processes: list[int] = field(default_factory=list)
    network: list[str] = field(default_factory=list)
    cgroups: int = 0

    def __str__(self) -> str:
        parts = [f"{len(self.processes)} processes"] if self.processes else []
        parts += [f"{len(self.network)} interfaces and rules"] if self.network else []
        parts += [f"{self.cgroups} cgroups"] if self.cgroups else []
        return ", ".join(parts)


def plan_of(state: ClusterState) -> Plan | None:
    """The plan of the cluster that is up or was up last; None where there never was one. Raises StackError."""
    document = state.read().get("plan")
    return Plan.of(document) if document else None


def remove_leftovers(state: ClusterState, plan: Plan | None) -> Removed:
    """Processes first, then what they held, unless another cluster has the same bridge by now. Raises StackError naming what stays."""
    try:
        killed = processes.sweep(state.run)
    except TimeoutError as error:
        raise StackError(str(error)) from error
    if plan is None or network.owner(plan) not in (None, str(state.root)):
        return Removed(killed)
    gone = network.remove(plan)
    return Removed(killed, gone, sum(cgroups.remove(node) for node in plan.all_nodes()))


def forget(state: ClusterState, *, everything: bool = False) -> None:
    """Deletes the cluster's data: objects, nodes' disks; the images that were pushed and the logs stay, unless `everything`."""
    for folder in (state.etcd, state.nodes):
        shutil.rmtree(folder, ignore_errors=True)
    if everything:
        shutil.rmtree(state.root, ignore_errors=True)
