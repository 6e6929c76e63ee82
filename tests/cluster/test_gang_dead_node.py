"""A node that dies with replicas on it. Only where somebody can make one die (tests/fixtures/nodes.py)."""

from __future__ import annotations

import pytest

from tests.cluster.gang_support import GangTenant, Running, behave, wait_for
from tests.fixtures.nodes import Nodes

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_replicas_on_a_dead_node_are_replaced_on_a_living_one(tenant: GangTenant, nodes: Nodes) -> None:
    """Their pods stay Running in the API for ever, and a Job replaces a pod only when it has failed or gone."""
    spec = tenant.spec(training__deadline_s=900)
    gang, log = tenant.gang(spec, behave(chief={"seconds": 200}))
    running = Running(gang)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs", 60)
    pods = tenant.pods(spec.run)
    chief = next(pod.node for pod in pods if pod.role == "chief")
    victims = {pod.node for pod in pods} - {chief}
    assert victims, "all replicas are on one node: replicas are to be spread, as far as there is room"
    node = victims.pop()
    assert node is not None
    lost = {pod.replica for pod in pods if pod.node == node}
    nodes.kill(node)
    wait_for(lambda: log.has(": giving up pod"), "the operator notices", 180)
    for replica in lost:
        wait_for(lambda replica=replica: log.has(f"{replica} was replaced"), f"{replica} is replaced", 120)  # type: ignore[misc]
    assert all(pod.node != node for pod in tenant.pods(spec.run) if not pod.over)
    assert running.result(300).generation == 1
    assert tenant.pods(spec.run) == []


def test_a_gang_with_its_chief_on_a_dead_node_is_taken_down_within_its_bound(tenant: GangTenant, nodes: Nodes) -> None:
    spec = tenant.spec(training__deadline_s=900)
    gang, log = tenant.gang(spec, behave(chief={"seconds": 600}))
    running = Running(gang)
    wait_for(lambda: log.has("all 5 replicas run"), "the gang runs", 60)
    node = next(pod.node for pod in tenant.pods(spec.run) if pod.role == "chief")
    assert node is not None
    nodes.kill(node)
    running.join(300)
    assert not running.is_alive()
    assert "Lost" in str(running.error)
    assert tenant.pods(spec.run) == []
