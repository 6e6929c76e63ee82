"""What is written on a node's disk, and how it is started."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from local.threenode import keys, node
from local.threenode.layout import ClusterState
from local.threenode.machine import Spec
from local.threenode.plan import PORTS, Plan, machine_memory
from local.threenode.services import Service


def setup(root: Path, plan: Plan) -> node.NodeSetup:
    state = ClusterState.at(root)
    for name in ("pause", "coredns"):
        (state.root / f"{name}.tar").write_text(name)
    programs = {name: Path("/usr/bin/true") for name in node.PROGRAMS}
    return node.NodeSetup(state, plan, plan.named("kube-node2"), keys.ensure(state.keys, plan), programs)


@pytest.fixture
def made(tmp_path: Path) -> node.NodeSetup:
    one = setup(tmp_path, Plan(ports={**PORTS, "registry": 5001}))
    one.write()
    return one


def test_the_machine_reads_what_was_written(made: node.NodeSetup) -> None:
    spec = Spec.read(made.spec_file)
    assert spec == made.spec()
    assert (spec.hostname, spec.uplink.address, spec.uplink.gateway) == ("kube-node2", "172.31.254.12/24", "172.31.254.1")
    assert spec.binds[-2:] == [(str(made.folder.lib), "/var/lib"), (str(made.folder.log), "/var/log")]
    assert all(Path(source).exists() for source, _ in spec.binds)
    for _, target in spec.binds[:-2]:  # a file can only be shown in place of a file
        assert Path(target).is_file()


def test_every_settings_file_that_a_program_is_told_of_is_there(made: node.NodeSetup) -> None:
    words = [word for service in made.services() for word in service["argv"]]
    told = {word.split("=")[-1] for word in words if node.SETTINGS in word}
    told |= {str(value) for value in made.kubelet().values() if str(value).startswith(node.SETTINGS)}
    told.add(made.kubelet()["authentication"]["x509"]["clientCAFile"])
    assert len(told) >= 10
    for path in told:
        assert (made.folder.lib / Path(path).relative_to("/var/lib")).exists(), path


def test_services_come_up_in_an_order_that_can_be_kept(made: node.NodeSetup) -> None:
    services = [Service.of(one) for one in made.services()]
    done_once = {one.name for one in services if one.once}
    assert {name for one in services for name in one.needs} <= done_once
    assert next(one for one in services if one.name == "kubelet").needs == ["image-pause", "image-coredns"]
    waiting = {one.name for one in services if node.CONF in one.after}
    assert waiting == {"kube-proxy", "flannel", "service-rules"}
    named = {one.name: one for one in services}
    assert named["kube-router"].needs == ["service-rules"]  # each would undo the other's first rules
    assert named["kube-proxy"].check == named["service-rules"].argv


def test_the_pods_network_is_written_when_it_is_known(made: node.NodeSetup) -> None:
    file = made.folder.lib / Path(node.CONF).relative_to("/var/lib")
    assert not file.exists()
    made.write_network("10.245.1.0/24")
    bridge, ports = json.loads(file.read_text())["plugins"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.245.1.0/24"}]]
    assert ports["type"] == "portmap"
    assert bridge["mtu"] <= 1500 - 50


def test_the_container_runtime_pulls_what_a_person_pushed(made: node.NodeSetup) -> None:
    config = tomllib.loads((made.folder.settings / "containerd.toml").read_text())
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["registry"]["config_path"] == f"{node.SETTINGS}/registries"
    hosts = tomllib.loads((made.folder.settings / "registries" / "localhost:5001" / "hosts.toml").read_text())
    assert hosts["server"] == "http://172.31.254.1:5001"
    assert list(hosts["host"]) == ["http://172.31.254.1:5001"]


def test_another_port_of_the_registry_leaves_no_old_one(made: node.NodeSetup, tmp_path: Path) -> None:
    setup(tmp_path, Plan(ports={**PORTS, "registry": 5002})).write()
    assert [path.name for path in (made.folder.settings / "registries").iterdir()] == ["localhost:5002"]


def test_a_node_offers_what_the_plan_says(tmp_path: Path) -> None:
    total = os.cpu_count() or 1
    kubelet = setup(tmp_path, Plan(cpus=0.5, memory=0.25)).kubelet()
    held, evicting = kubelet["systemReserved"], int(kubelet["evictionHard"]["memory.available"])
    assert held == {"cpu": f"{total * 1000 - 500}m", "memory": str(machine_memory() - 2**28 - evicting)}
    everything = setup(tmp_path, Plan(memory=machine_memory() / 2**30)).kubelet()["systemReserved"]
    assert everything == {"memory": "0"}
    assert setup(tmp_path, Plan()).kubelet()["systemReserved"] == {}


def test_keys_on_the_node_are_its_own_and_secret(made: node.NodeSetup) -> None:
    settings = made.folder.settings
    assert (settings / "node.crt").read_bytes() == made.keys.crt("kube-node2").read_bytes()
    assert not (settings / "ca.key").exists()
    for name in ("node.key", "kubelet.conf", "flannel.conf"):
        assert stat.S_IMODE((settings / name).stat().st_mode) == 0o600
    texts = [path.read_bytes() for path in settings.rglob("*") if path.is_file()]
    assert not any(made.keys.key("admin").read_bytes() in text for text in texts)


def test_it_can_be_written_again_over_what_is_there(made: node.NodeSetup) -> None:
    made.write_network("10.245.1.0/24")
    made.write()
    assert (made.folder.lib / Path(node.CONF).relative_to("/var/lib")).exists()  # it keeps its addresses
    assert (made.folder.settings / "pause.tar").read_text() == "pause"
