"""A node dies in mid-training: the run ends well, and nothing of it is left, also on the dead node. Only where somebody can make one die
(tests/fixtures/nodes.py), and the other nodes have room for the gang.

    TRAINYARD_TEST_CLUSTER=threenode KUBECONFIG=… pytest -m long tests/e2e/test_dead_node.py
"""

from __future__ import annotations

import itertools

import pytest
from kubernetes import client as k8s

from tests.fixtures.nodes import Nodes
from tests.fixtures.platform import Platform, until
from trainyard.contract import names

CHECKPOINTED = 500
"""Steps after which there is a checkpoint to go on from (of `digits-long`, every 200 or 250 steps)."""
STEPS = 15000
"""Minutes of training: a node's death is known to the API server after 40 s."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


def objects(platform: Platform, run: str) -> list[str]:
    """All that the cluster has of a run."""
    core = platform.core()
    batch, networking = k8s.BatchV1Api(core.api_client), k8s.NetworkingV1Api(core.api_client)
    listed = (
        core.list_pod_for_all_namespaces,
        core.list_service_for_all_namespaces,
        core.list_config_map_for_all_namespaces,
        batch.list_job_for_all_namespaces,
        networking.list_network_policy_for_all_namespaces,
    )
    selector = f"{names.LABEL_RUN}={run}"
    return [f"{type(item).__name__} {item.metadata.name}" for call in listed for item in call(label_selector=selector).items]


@pytest.mark.parametrize("role", names.ROLES)
def test_the_node_of_one_role_dies(platform: Platform, nodes: Nodes, role: str) -> None:
    run = platform.begin("digits-long", "--set", f"steps={STEPS}")["run"]
    at = platform.wait_for_training(run, step=CHECKPOINTED)
    pods = platform.core().list_pod_for_all_namespaces(label_selector=f"{names.LABEL_RUN}={run},{names.LABEL_ROLE}").items
    placed = {pod.metadata.labels[names.LABEL_ROLE]: pod.spec.node_name for pod in pods}
    nodes.kill(placed[role])
    end = platform.wait_for_end(run, within_s=1200)
    print(f"{role} of {placed} died at step {at}: generation {end['generation']}, {end['state']}")
    assert end["state"] == "success", end
    assert end["result"]["outcome"] == "exported"
    until(lambda: not objects(platform, run), 60, lambda: f"nothing is left while the node is dead; there are {objects(platform, run)}")
    chief = platform.trainyard("logs", run, "chief-0").out
    steps = [int(line.split("step ")[1].split("/")[0]) for line in chief.splitlines() if "step " in line and f"/{STEPS}" in line]
    went_back_to = [later for earlier, later in itertools.pairwise(steps) if later < earlier]
    assert all(step >= 200 for step in went_back_to), f"it began anew instead of at its checkpoint: {went_back_to}"
