"""The life of a cluster of `trainyard cluster up`, which is to end without a trace: begun, doubled, hurt, killed, taken down.

It is a cluster of its own (folder, bridge, networks, ports), so that it can be beside another. Needs root and Debian's packages; the first
time it compiles for minutes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local import leftovers
from local.stack import shim
from local.stack.processes import recorded
from local.threenode import cgroups, needs
from local.threenode.plan import Plan
from tests.fixtures.platform import free_block

CHECKOUT = Path(__file__).resolve().parents[2]
BRIDGE = "tytest"
NETWORKS = ["--bridge", BRIDGE, "--subnet", "172.31.252.0/24", "--pods", "10.247.0.0/16", "--services", "10.99.0.0/16"]
KUBELET_PORT = 10250
UP_WITHIN_S = 1500.0
"""With the compiling."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster of namespaces wants root"),
    pytest.mark.skipif(bool(needs.missing_packages()), reason=f"not installed: {', '.join(needs.missing_packages())}"),
]


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        base = free_block(4)
        names = ("kube_apiserver", "registry", "kube_controller_manager", "kube_scheduler")
        ports = [word for index, name in enumerate(names) for word in ("--port", f"{name}={base + index}")]
        self.options = [*NETWORKS, *ports, "--nodes", "2", "--memory", "1", "--unsafe-no-fsync"]

    def call(self, command: str, *words: str, within_s: float = 120) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "local.threenode", command, "--state", str(self.folder), *words]
        return subprocess.run(program, cwd=CHECKOUT, capture_output=True, text=True, timeout=within_s)

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.call("up", *self.options, *more, within_s=UP_WITHIN_S)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.call("status", "--json").stdout))

    def node(self, name: str) -> dict[str, Any]:
        return next(dict(one) for one in self.status()["nodes"] if one["name"] == name)

    def part(self, machine: str, name: str) -> dict[str, Any]:
        return next(dict(one) for one in self.status()["parts"] if (one["machine"], one["name"]) == (machine, name))

    def kubectl(self, *words: str, text: str | None = None) -> str:
        program = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(self.folder / "kubeconfig"), *words]
        done = subprocess.run(program, input=text, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pids(self, node: str) -> list[int]:
        """Every process of a node, its pods' included, as the machine sees them."""
        one, _ = recorded(self.folder / "run")[node]
        return shim.descendants(one.pid)

    def inside(self, node: str, *words: str) -> str:
        """What a program says in the node's network."""
        _, main = recorded(self.folder / "run")[node]
        first = next(pid for pid in self.pids(node) if int(shim.stat_fields(pid)[1]) == main.pid)
        done = subprocess.run(["nsenter", f"--net=/proc/{first}/ns/net", *words], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def traces(self) -> dict[str, list[str]]:
        """All that is left of it on the machine."""

        def lines(*words: str) -> list[str]:
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            return [line for line in done.stdout.splitlines() if BRIDGE in line or str(self.folder) in line]

        hierarchies = [path for root in cgroups.roots() for path in root.glob(f"{BRIDGE}-*")]
        found = {
            "processes": list(leftovers.processes_of(self.folder).values()),
            "interfaces": lines("ip", "-o", "link"),
            "namespaces": lines("ip", "netns"),
            "rules": lines("iptables-save"),
            "mounts": lines("cat", "/proc/mounts"),
            "cgroups": [str(path) for path in hierarchies],
        }
        return {what: ones for what, ones in found.items() if ones}


def until(condition: Callable[[], Any], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("threenode"))
    assert made.traces() == {}
    done = made.up()
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield made
    finally:
        down = made.call("down")
    assert down.returncode == 0, down.stderr
    assert made.traces() == {}


POD = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: sleeper}
spec:
  selector: {matchLabels: {app: sleeper}}
  template:
    metadata: {labels: {app: sleeper}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: "docker.io/trainyard/pause:1", imagePullPolicy: Never}]
"""


def sleepers_run(cluster: Cluster) -> bool:
    text = cluster.kubectl("get", "daemonset", "sleeper", "-o", "jsonpath={.status.numberReady} {.status.desiredNumberScheduled}")
    return text == "2 2"


def test_every_part_is_well_and_pods_run_on_every_node(cluster: Cluster) -> None:
    status = cluster.status()
    assert status["well"]
    assert {node["memory"] for node in status["nodes"]} == {"1Gi"}
    assert {part["machine"] for part in status["parts"]} == {"kube-master", "kube-node1", "kube-node2"}
    assert cluster.call("status").returncode == 0
    cluster.kubectl("apply", "-f", "-", text=POD)
    until(lambda: sleepers_run(cluster))


def test_up_while_it_is_up_says_so_and_another_plan_is_refused(cluster: Cluster) -> None:
    again = cluster.up()
    assert again.returncode == 0, again.stderr
    assert f"the cluster is already up in {cluster.folder}" in again.stdout
    assert f"export KUBECONFIG={cluster.folder}/kubeconfig" in again.stdout
    other = cluster.up("--nodes", "3")
    assert other.returncode == 1
    assert "is up with another plan (nodes is 2, not 3): `trainyard cluster down` first" in other.stderr


def test_another_cluster_on_the_same_bridge_is_refused_and_its_end_harms_nothing(cluster: Cluster, tmp_path: Path) -> None:
    other = Cluster(tmp_path / "other")
    refused = other.up()
    assert refused.returncode == 1
    assert (
        f"interface {BRIDGE} is of the cluster in {cluster.folder}: `trainyard cluster down --state {cluster.folder}` first"
        in refused.stderr
    )
    assert other.call("down").returncode == 0
    assert cluster.status()["well"]
    assert all(names_resolve(cluster, node) for node in ("kube-node1", "kube-node2"))


def names_resolve(cluster: Cluster, node: str) -> bool:
    """By the node's rules for the DNS Service, to a pod that may be on the other one. What answers elsewhere does not know this."""
    plan = Plan.of(json.loads((cluster.folder / "state.json").read_text())["plan"])
    return cluster.inside(node, sys.executable, "-c", ASK, str(plan.dns)).strip() == str(plan.kubernetes_service)


ASK = """
import socket, struct, sys
name = b"".join(bytes([len(one)]) + one.encode() for one in "kubernetes.default.svc.cluster.local".split(".")) + bytes(1)
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.settimeout(2)
for _ in range(10):
    asker.sendto(struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + name + struct.pack(">HH", 1, 1), (sys.argv[1], 53))
    try:
        print(socket.inet_ntoa(asker.recv(2000)[-4:]))
        break
    except TimeoutError:
        pass
"""


def test_names_resolve_on_every_node_and_rules_that_are_lost_come_back(cluster: Cluster) -> None:
    """A node without its rules for Services is Ready all the same: nobody else would notice."""
    assert all(names_resolve(cluster, node) for node in ("kube-node1", "kube-node2"))
    cluster.inside("kube-node1", "iptables", "-t", "nat", "-F", "KUBE-SERVICES")
    assert not names_resolve(cluster, "kube-node1")
    until(lambda: names_resolve(cluster, "kube-node1"), 120)
    assert cluster.part("kube-node1", "kube-proxy")["restarts"] == 1


def test_a_program_of_a_node_that_dies_is_started_again_and_pods_live_on(cluster: Cluster) -> None:
    def of(name: str) -> list[int]:
        return [pid for pid in cluster.pids("kube-node1") if Path(f"/proc/{pid}/comm").read_text().strip() == name]

    pods = of("pause")
    assert pods
    (containerd,) = of("containerd")
    os.kill(containerd, signal.SIGKILL)
    until(lambda: cluster.part("kube-node1", "containerd")["restarts"] == 1 and cluster.status()["well"])
    assert set(pods) <= set(of("pause"))


def test_a_node_is_switched_off_and_on(cluster: Cluster) -> None:
    pids = cluster.pids("kube-node2")
    assert len(pids) > 10
    assert cluster.call("node-down", "kube-node2").returncode == 0
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    off = cluster.node("kube-node2")
    assert (off["power"], off["ready"], off["cable"]) == (False, False, False)
    assert cluster.call("status").returncode == 1
    assert "kube-node2 is off already" in cluster.call("node-down", "kube-node2").stderr
    assert "kube-node2 is off: it has no cable" in cluster.call("cut", "kube-node2").stderr
    on = cluster.call("node-up", "kube-node2", within_s=240)
    assert on.returncode == 0, on.stderr
    until(lambda: cluster.status()["well"] and sleepers_run(cluster))
    assert names_resolve(cluster, "kube-node2")
    assert "there is no node 'kube-node9': the nodes are kube-node1, kube-node2" in cluster.call("node-down", "kube-node9").stderr


def test_a_cable_is_pulled_and_plugged_in(cluster: Cluster) -> None:
    plan = Plan.of(json.loads((cluster.folder / "state.json").read_text())["plan"])
    node = plan.named("kube-node1")

    def reachable() -> bool:
        try:
            socket.create_connection((str(node.address), KUBELET_PORT), 2).close()
        except OSError:
            return False
        return True

    until(reachable)
    pids = set(cluster.pids("kube-node1"))
    assert cluster.call("cut", "kube-node1").returncode == 0
    assert not reachable()
    assert not cluster.node("kube-node1")["cable"]
    assert pids & set(cluster.pids("kube-node1"))
    assert cluster.call("mend", "kube-node1").returncode == 0
    until(reachable)


def test_a_sigkill_of_its_starter_takes_everything_and_up_goes_on_with_its_objects(cluster: Cluster) -> None:
    pids = [*cluster.pids("kube-node1"), *cluster.pids("kube-node2")]
    starter = json.loads((cluster.folder / "state.json").read_text())["starter"]["pid"]
    os.kill(starter, signal.SIGKILL)
    until(lambda: leftovers.processes_of(cluster.folder) == {}, 20)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert cluster.status()["phase"] == "down"
    assert cluster.call("status").returncode == 3
    again = cluster.up()
    assert again.returncode == 0, again.stdout + again.stderr
    until(lambda: sleepers_run(cluster))


def test_after_everything_was_killed_at_once_down_leaves_no_trace(cluster: Cluster) -> None:
    """Shims, starter and what they watch, in one blow: nobody is left to clean."""
    starter = json.loads((cluster.folder / "state.json").read_text())["starter"]["pid"]
    for pid in [starter, *shim.descendants(starter)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    done = cluster.call("down")
    assert done.returncode == 0, done.stderr
    assert "an earlier start had left" in done.stdout
    assert cluster.traces() == {}
    assert "the cluster was not up" in cluster.call("down").stdout


def test_an_interrupted_up_leaves_no_trace(cluster: Cluster) -> None:
    program = [sys.executable, "-m", "local.threenode", "up", "--state", str(cluster.folder), *cluster.options]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(program, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if "kube-node1, kube-node2" in line:
                break
        process.send_signal(number)
        process.communicate(timeout=90)
        assert process.returncode != 0
        until(lambda: cluster.traces() == {}, 60)
