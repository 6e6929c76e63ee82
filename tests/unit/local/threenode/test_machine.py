"""A node's namespaces for real: what it sees, what it hides, and that the end of its first process is the end of all. Needs root."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.stack import shim
from local.stack.processes import recorded
from local.threenode import machine
from local.threenode.machine import Spec, Uplink
from local.threenode.needs import SEARCH

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and interfaces want root"),
]
SLEEP = "exec sleep 600"
MOUNT, POD = "/var/lib/of-the-machine-test", "of-the-machine-test"


def until(condition: Callable[[], Any], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


class Node:
    """One node on a bridge of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"t{secrets.token_hex(2)}"
        for part in ("lib", "log", "logs", "run"):
            (folder / part).mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self.record = folder / "run" / "node.process.json"

    def start(self, *services: dict[str, Any], tmpfs: tuple[str, ...] = ("/run",)) -> None:
        lib = (str(self.folder / "lib"), "/var/lib")
        spec = Spec(
            hostname="kube-node1",
            uplink=Uplink(self.name, f"{self.name}-n1", "192.0.2.130/28", "192.0.2.129"),
            binds=[lib, (str(self.folder / "log"), "/var/log")],
            tmpfs=list(tmpfs),
            sysctls={"net.ipv4.ip_forward": "1", "net.no.such.thing": "1"},
            environment={"PATH": SEARCH},
            services=list(services),
            logs=str(self.folder / "logs"),
            report=str(self.folder / "run" / "report.json"),
        )
        file = self.folder / "spec.json"
        file.write_text(json.dumps(dataclasses.asdict(spec)))
        command = [sys.executable, "-I", "-S", shim.__file__, "--name", "node", "--record", str(self.record)]
        command += ["--log", str(self.folder / "machine.log"), "--grace", "0", "--parent", str(os.getpid()), "--"]
        self.process = subprocess.Popen([*command, sys.executable, "-I", "-S", machine.__file__, str(file)])

    def report(self) -> dict[str, Any]:
        path = self.folder / "run" / "report.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def log(self, service: str) -> str:
        path = self.folder / "logs" / f"kube-node1.{service}.log"
        return path.read_text() if path.exists() else ""

    def pids(self) -> list[int]:
        """Of the node, as the machine sees them."""
        assert self.process is not None
        return shim.descendants(self.process.pid)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    subprocess.run(["ip", "link", "add", made.name, "type", "bridge"], check=True)
    subprocess.run(["ip", "addr", "add", "192.0.2.129/28", "dev", made.name], check=True)
    subprocess.run(["ip", "link", "set", made.name, "up"], check=True)
    try:
        yield made
        if made.process is not None:
            made.process.send_signal(signal.SIGTERM)
            made.process.wait(20)
        assert [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line or MOUNT in line] == []
    finally:
        subprocess.run(["ip", "link", "del", f"{made.name}-n1"], capture_output=True)
        subprocess.run(["ip", "link", "del", made.name], check=True)


def service(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "argv": ["sh", "-c", text], **more}


def test_it_has_a_name_an_address_and_files_of_its_own(node: Node) -> None:
    (node.folder / "lib" / "here").write_text("of the node\n")
    node.start(
        service("look", "hostname; cat /var/lib/here; ls /run | wc -l; ip -br addr show eth0; cat /proc/sys/net/ipv4/ip_forward; " + SLEEP)
    )
    until(lambda: len(node.log("look").splitlines()) >= 5)
    name, there, run, address, forward = node.log("look").splitlines()[:5]
    assert (name, there, run, forward) == ("kube-node1", "of the node", "0", "1")
    assert "192.0.2.130/28" in address
    assert not Path("/var/lib/here").exists()
    assert "net.no.such.thing" in (node.folder / "machine.log").read_text()


PING = """
while true; do
  timeout 2 bash -c 'echo > /dev/tcp/192.0.2.129/1' 2>&1 | grep -o -E 'refused|unreachable' || echo silent
  sleep 0.2
done
"""


def test_it_reaches_the_machine_over_its_cable_and_not_without(node: Node) -> None:
    node.start(service("ping", PING))
    until(lambda: "refused" in node.log("ping"))
    subprocess.run(["ip", "link", "set", f"{node.name}-n1", "down"], check=True)
    until(lambda: not node.log("ping").rstrip().endswith("refused"))
    subprocess.run(["ip", "link", "set", f"{node.name}-n1", "up"], check=True)
    until(lambda: node.log("ping").rstrip().endswith("refused"))


BUSY = f"""
mkdir -p {MOUNT} /run/netns; mount -t tmpfs tmpfs {MOUNT}
ip netns add {POD}; ip link add v0 type veth peer name v1 netns {POD}
setsid sh -c 'sleep 601 & sleep 602 & wait' &
echo made; exec sleep 600
"""


@pytest.mark.parametrize("victim", ["first process", "shim", "machine"])
def test_a_sigkill_of_any_of_its_three_leaves_no_process_mount_or_interface(node: Node, victim: str) -> None:
    node.start(service("busy", BUSY))
    until(lambda: "made" in node.log("busy"))
    assert node.process is not None
    _, main = recorded(node.folder / "run")["node"]
    first = next(pid for pid in node.pids() if int(shim.stat_fields(pid)[1]) == main.pid)
    until(lambda: len(node.pids()) >= 6)
    everything = node.pids()
    assert MOUNT in Path(f"/proc/{first}/mounts").read_text()
    os.kill({"first process": first, "shim": node.process.pid, "machine": main.pid}[victim], signal.SIGKILL)
    node.process.wait(20)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything))
    until(lambda: not Path(f"/sys/class/net/{node.name}-n1").exists())
    assert POD not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


def test_it_can_start_where_it_has_just_died(node: Node) -> None:
    for _ in range(3):
        node.start(service("one", "echo up; " + SLEEP))
        until(lambda: node.report().get("one", {}).get("state") == "running")
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(20) != 1
        (node.folder / "run" / "report.json").unlink()
    assert node.log("one") == "up\n" * 3


def test_without_its_bridge_it_says_so_and_ends(node: Node) -> None:
    node.name, there = "nobridge", node.name
    try:
        node.start(service("one", SLEEP))
        assert node.process is not None
        assert node.process.wait(20) != 0
        said = (node.folder / "machine.log").read_text()
        assert said.startswith("machine: kube-node1: ip link set nobridge-n1 master nobridge up: ")
        node.process = None
        assert not Path("/sys/class/net/nobridge-n1").exists()
    finally:
        node.name = there
