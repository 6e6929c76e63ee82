"""The master's flags as far as security and addresses hang on them, and ports that are taken."""

from __future__ import annotations

import datetime
import json
import os
import socket
from pathlib import Path

import pytest

from local.stack.events import StackError
from local.stack.supervisor import Component
from local.threenode import keys, master
from local.threenode.api import Api
from local.threenode.layout import ClusterState
from local.threenode.plan import PORTS, Plan


@pytest.fixture
def components(tmp_path: Path) -> dict[str, Component]:
    plan, state = Plan(), ClusterState.at(tmp_path)
    made = keys.ensure(state.keys, plan)
    one = master.Master(state, plan, made, Path("/bin/kube"), Api(plan.server, made))
    return {component.name: component for component in one.components()}


def test_the_names_are_those_that_are_waited_for_and_stopped(components: dict[str, Component]) -> None:
    assert tuple(components) == master.COMPONENTS


def test_etcd_is_on_sockets_that_root_alone_reaches(components: dict[str, Component]) -> None:
    etcd = components["etcd"]
    told = [word for word in etcd.program if "url" in word]
    assert len(told) == 4
    assert all("=unix://" in word for word in told)
    assert etcd.cwd.stat().st_mode & 0o077 == 0
    assert components["kube-apiserver"].cwd == etcd.cwd  # the socket's name is relative


def test_a_killed_etcds_socket_is_no_sign_of_life(components: dict[str, Component]) -> None:
    etcd = components["etcd"]
    file = etcd.cwd / "etcd.sock:0"
    now = datetime.datetime.now(datetime.UTC)
    assert not etcd.ready(now)
    file.touch()
    os.utime(file, (now.timestamp() - 60, now.timestamp() - 60))
    assert not etcd.ready(now)
    file.touch()
    assert etcd.ready(now)


def test_nothing_listens_beyond_bridge_and_loopback(components: dict[str, Component]) -> None:
    bound = {
        name: next(word for word in component.program if word.startswith("--bind-address="))
        for name, component in components.items()
        if name.startswith("kube-")
    }
    assert bound == {
        "kube-apiserver": "--bind-address=172.31.254.1",
        "kube-controller-manager": "--bind-address=127.0.0.1",
        "kube-scheduler": "--bind-address=127.0.0.1",
    }
    assert "--anonymous-auth=false" in components["kube-apiserver"].program
    stores = [json.loads(Path(components[name].program[-1]).read_text()) for name in ("registry", "registry-nodes")]
    assert [one["http"]["addr"] for one in stores] == ["127.0.0.1:5000", "172.31.254.1:5000"]
    assert stores[0]["storage"] == stores[1]["storage"]
    assert stores[0]["http"]["secret"] == stores[1]["http"]["secret"]


def test_no_component_is_given_the_callers_environment(components: dict[str, Component]) -> None:
    """A proxy of the environment would be asked for the API server."""
    assert {name for component in components.values() for name in component.environment} == {"PATH", "HOME", "LANG"}


def test_a_taken_port_is_told_with_its_owner_and_its_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StackError) as error:
            master.check_ports(Plan(ports={**PORTS, "kube_apiserver": 1, "kube_scheduler": port, "kube_controller_manager": 2}))
    said = str(error.value)
    assert said.startswith(f"port {port} of 127.0.0.1, for kube_scheduler, is taken by pid {os.getpid()} (")
    assert said.endswith("or choose another by --port kube_scheduler=N")
