"""Where the replicas of a gang come to lie, without anybody naming a node. Needs two nodes that take pods."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cluster.gang_support import GangTenant, Running, behave, wait_for


def schedulable_nodes(tenant: GangTenant) -> list[str]:
    nodes = tenant.core.list_node().items
    closed = {"NoSchedule", "NoExecute"}
    return [node.metadata.name for node in nodes if not any(taint.effect in closed for taint in node.spec.taints or [])]


def test_each_role_is_spread_over_the_nodes(tenant: GangTenant) -> None:
    """2 PS + 4 workers on two nodes: one PS and two workers each. All PS on one node would share its one network card."""
    nodes = schedulable_nodes(tenant)
    if len(nodes) < 2:
        pytest.skip(f"needs two nodes that take pods; there is {nodes}")
    spec = tenant.spec(gang__workers=4, gang__parameter_servers=2)
    gang, log = tenant.gang(spec, behave(chief={"seconds": 4}))
    running = Running(gang)
    wait_for(lambda: log.has("all 7 replicas run"), "the gang runs", 120)
    pods = tenant.pods(spec.run)
    running.result()
    for role, count in (("ps", 2), ("worker", 4)):
        placed = Counter(pod.node for pod in pods if pod.role == role)
        print(f"{role}: " + ", ".join(f"{node} {number}" for node, number in sorted(placed.items(), key=str)))
        assert sum(placed.values()) == count
        assert len(placed) == min(len(nodes), count), placed
        assert max(placed.values()) - min(placed.values()) <= 1, placed
