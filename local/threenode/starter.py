"""The one process that owns a running cluster: brings it up in order, watches over it, switches nodes off and on, takes it down.

It is a daemon. However it dies, its shims take every component with them (local/stack/shim.py), and a node is one component.
"""

from __future__ import annotations

import datetime
import logging
import os
import sys
import time
import urllib.error
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local import rights
from local.stack import processes
from local.stack.daemon import Daemon, Folder
from local.stack.events import Reporter, StackError
from local.stack.state import write_private
from local.stack.supervisor import Component, Supervisor
from local.threenode import addons, cgroups, cleaning, images, keys, master, needs, network, resolving, status
from local.threenode.api import Api
from local.threenode.layout import ClusterState
from local.threenode.master import Master
from local.threenode.node import NodeSetup
from local.threenode.plan import Plan

log = logging.getLogger("trainyard.threenode")

STATE_VERSION = 1
NODE_WITHIN_S = 180.0
"""From its start to Ready, on a machine that is busy."""
DNS_WITHIN_S = 120.0
API_RETRY_S = 20.0
"""Roles are refused for a moment after the API server's first start, until its own are there."""
DYING_RESTARTS = 3
MACHINE = Path(__file__).with_name("machine.py")


@dataclass
class Starter(Daemon):
    """One cluster, from its start to its end."""

    state: ClusterState
    plan: Plan
    programs: Mapping[str, Path]
    reporter: Reporter
    supervisor: Supervisor = field(init=False)
    phase: str = "starting"
    off: set[str] = field(default_factory=set)
    """Nodes that were switched off."""
    _api: Api | None = None
    _nodes: dict[str, NodeSetup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.state.run, self.state.logs, self._write_state)

    @property
    def folder(self) -> Folder:
        return self.state

    def _until(self, what: str, probe: Callable[[], bool], within_s: float, hint: Callable[[], str] = lambda: "") -> None:
        """Waits, and watches over the components meanwhile. Raises StackError."""
        deadline = time.monotonic() + within_s
        while not probe():
            self.supervisor.poll()
            if self._stopping():
                raise InterruptedError
            if time.monotonic() > deadline:
                raise StackError(f"{what} not within {within_s:.0f} s. {hint()}".strip())
            time.sleep(0.2)

    # ----------------------------------------------------------------------------------------------------------------- up
    def _bring_up(self) -> None:
        before = cleaning.plan_of(self.state)
        removed = cleaning.remove_leftovers(self.state, before)
        if str(removed):
            self.reporter.note(f"an earlier start had left {removed}: taken away")
        if before and _identity(before) != _identity(self.plan):
            cleaning.forget(self.state)  # its objects name other nodes and addresses
        self._write_state()
        master.check_ports(self.plan)
        needs.load_modules()
        with self.reporter.phase("network", f"{self.plan.bridge}, {self.plan.subnet}"):
            network.make(self.plan, self.state.root)
        made = keys.ensure(self.state.keys, self.plan)
        api = self._api = Api(self.plan.server, made)
        self._write_kubeconfigs(made)
        for name, reference in (("pause", images.PAUSE), ("coredns", images.COREDNS)):
            images.write(self.state.root / f"{name}.tar", reference, self.programs[name])
        with self.reporter.phase("kube-master", "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, registry"):
            self._start_master(Master(self.state, self.plan, made, self.programs["kube"], api))
            self._apply(*addons.rights(), *rights.manifests(shared_ports=False))
        for node in self.plan.all_nodes():
            self._nodes[node.name] = NodeSetup(self.state, self.plan, node, made, self.programs)
        with self.reporter.phase(", ".join(self._nodes), "containerd, kubelet, kube-proxy, flannel, kube-router"):
            self._switch_on(list(self._nodes))
        with self.reporter.phase("DNS", "CoreDNS"):
            self._apply(*addons.dns(self.plan, resolving.upstream()))
            self._until(
                "CoreDNS is ready",
                lambda: api.deployment_ready(addons.DNS_NAMESPACE, addons.DNS_NAME),
                DNS_WITHIN_S,
                lambda: status.pod_trouble(self.state, f"{addons.DNS_NAMESPACE}_{addons.DNS_NAME}"),
            )

    def _write_kubeconfigs(self, made: keys.Keys) -> None:
        """The administrator's, and those that Trainyard itself uses; whoever became root by sudo may read them too."""
        user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
        files = {keys.ADMIN: self.state.kubeconfig} | {name: self.state.kubeconfig_of(name) for name in (keys.RUN, keys.SYNC)}
        for identity, path in files.items():
            write_private(path, made.kubeconfig(identity, self.plan.server))
            if user and group:
                os.chown(path, int(user), int(group))

    def _start_master(self, one: Master) -> None:
        for component in one.components():
            self.supervisor.start(component)
            if component.name in ("etcd", master.APISERVER_NAME):
                self.supervisor.wait_ready([component.name], interrupted=self._stopping)
        self.supervisor.wait_ready(master.COMPONENTS, interrupted=self._stopping)

    def _apply(self, *manifests: dict[str, Any]) -> None:
        assert self._api is not None
        api, deadline = self._api, time.monotonic() + API_RETRY_S
        for manifest in manifests:
            while True:
                try:
                    api.apply(manifest)
                    break
                except (urllib.error.HTTPError, OSError) as error:
                    if time.monotonic() > deadline:
                        what = f"{manifest['kind']} {manifest['metadata']['name']}"
                        said = error.read().decode(errors="replace")[:300] if isinstance(error, urllib.error.HTTPError) else ""
                        raise StackError(f"{what} cannot be made ({error}) {said}".strip()) from error
                if self._stopping():
                    raise InterruptedError
                time.sleep(0.3)

    # -------------------------------------------------------------------------------------------------------------- nodes
    def _switch_on(self, names: list[str]) -> None:
        """Starts these nodes together and returns when they are Ready. Raises StackError."""
        assert self._api is not None
        api = self._api
        for name in names:
            setup = self._nodes[name]
            cgroups.make(setup.node)
            setup.write()
            self.state.report(setup.node).unlink(missing_ok=True)
            self.supervisor.start(self._component(setup))
            self.off.discard(name)
        ranges: dict[str, str] = {}

        def known() -> bool:
            self._refuse_dying(names)
            for name in set(names) - set(ranges):
                if found := api.pod_range(name):
                    ranges[name] = found
                    self._nodes[name].write_network(found)
            return len(ranges) == len(names)

        self._until("nodes are registered", known, NODE_WITHIN_S, lambda: self._troubles(name for name in names if name not in ranges))
        try:
            self.supervisor.wait_ready(names, interrupted=self._stopping)
        except StackError as error:
            raise StackError(f"{error} {self._troubles(names)}".strip()) from error
        self._write_state()

    def _component(self, setup: NodeSetup) -> Component:
        api, name = self._api, setup.node.name
        assert api is not None
        program = [sys.executable, "-I", "-S", str(MACHINE), str(setup.spec_file)]

        def ready(since: datetime.datetime) -> bool:
            """Ready says nothing of Services and NetworkPolicies: their programs are asked too."""
            return api.node_ready(name, since) and status.all_well(status.programs(self.state, setup.node))

        # No grace: to stop a node is to switch it off.
        return Component(name, program, self.state.run, master.ENVIRONMENT, 0.0, ready, NODE_WITHIN_S)

    def _refuse_dying(self, names: Iterable[str]) -> None:
        """Raises StackError when one keeps ending while it starts: to wait longer would not help."""
        known = self.supervisor.describe()
        for name in names:
            if name in known and int(str(known[name]["restarts"])) >= DYING_RESTARTS:
                raise StackError(f"{name} keeps ending while it starts. {status.end_of(self.supervisor.log_path(name))}")

    def _troubles(self, names: Iterable[str]) -> str:
        """What the programs of these nodes say, as far as they are not well."""
        found = [status.trouble(self.state, self.plan.named(name)) for name in names]
        return " ".join(filter(None, found))

    def _node_down(self, name: str) -> None:
        self.plan.named(name)
        if name in self.off:
            raise StackError(f"{name} is off already: `trainyard cluster node-up {name}` switches it on")
        with self.reporter.phase(f"{name} off"):
            self.off.add(name)
            self.supervisor.stop([name])
        self._write_state()

    def _node_up(self, name: str) -> None:
        self.plan.named(name)
        if name not in self.off:
            raise StackError(f"{name} is on already")
        with self.reporter.phase(f"{name} on"):
            self._switch_on([name])

    # ----------------------------------------------------------------------------------------------------------- requests
    def _carry_out(self, request: Mapping[str, Any]) -> None:
        doing = {"node-down": self._node_down, "node-up": self._node_up}.get(str(request.get("do")))
        if doing is None:
            raise StackError(f"unknown request {request.get('do')!r}")
        doing(str(request.get("node")))

    # --------------------------------------------------------------------------------------------------------------- down
    def _take_down(self) -> None:
        """Nodes first, then the users of the API server, it, and etcd last; then what they leave on the machine."""
        self.phase = "stopping"
        self._write_state()
        nodes = [node.name for node in self.plan.all_nodes()]
        for group in (nodes, [master.CONTROLLERS, master.SCHEDULER, "registry", "registry-nodes"], [master.APISERVER_NAME], ["etcd"]):
            self.supervisor.stop(group)
        try:
            cleaning.remove_leftovers(self.state, self.plan)
        except StackError as error:
            log.error("%s", error)
            self._say_error(str(error))
        self.phase = "down"
        self._write_state()

    # -------------------------------------------------------------------------------------------------------------- state
    def _write_state(self) -> None:
        me = processes.Identity.of(os.getpid())
        self.state.write(
            {
                "version": STATE_VERSION,
                "phase": self.phase,
                "state_dir": str(self.state.root),
                "starter": {"pid": me.pid, "started": me.started},
                "plan": self.plan.document(),
                "kubeconfig": str(self.state.kubeconfig),
                "server": self.plan.server,
                "registry": self.plan.registry,
                "off": sorted(self.off),
                "components": self.supervisor.describe(),
            }
        )


def _identity(plan: Plan) -> tuple[object, ...]:
    """What the objects of a cluster were made for: with another, they are of no use."""
    return plan.nodes, plan.subnet, plan.pods, plan.services
