"""The one process that owns a running platform: brings it up in order, watches over it, takes it down in the reverse order.

It is a daemon (or the foreground program of `up --foreground`). However it dies, its shims take every component with them.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from local.stack import configuration, control_plane, ports, processes
from local.stack import site as sites
from local.stack.airflow import ADMIN, COMPONENTS, Airflow
from local.stack.binary import kube_binary
from local.stack.control_plane import ControlPlane
from local.stack.daemon import Daemon, Folder
from local.stack.events import Reporter, StackError
from local.stack.s3 import REGION, S3
from local.stack.site import EMBEDDED, Site
from local.stack.state import CHECKOUT, State
from local.stack.supervisor import Component, Supervisor

log = logging.getLogger("trainyard.stack")

STATE_VERSION = 1
LEAST_SPACE, FULL = 512 << 20, 16 << 20
"""Bytes: etcd alone lays out 128 MB of log; and what counts as no space at all."""
DROPPED = ("AIRFLOW", "PYTHON", "KUBECONFIG", "AWS_", "TRAINYARD_", "WEED_", "NOTIFY_SOCKET")
"""Prefixes of variables that a component must not get from the shell that happened to start the platform."""


@dataclass(frozen=True)
class Options:
    """What `up` was asked for."""

    ports: Mapping[str, int]
    airflow: bool = True
    s3: bool = True
    """False: pods' storage is somebody else's, as where the cluster runs in a container of its own (docker-compose.yaml)."""
    sync: bool = True
    fsync: bool = True
    config: Path = CHECKOUT / "config"
    cluster: str = EMBEDDED
    name: str | None = None
    """By which the embedded cluster's API server is reached from elsewhere; None: on loopback alone."""
    handed_out: Path | None = None
    """Folder for the kubeconfigs of those who do."""
    images: Path = CHECKOUT / "local" / "images.yaml"
    node_cpu: int | None = None
    node_memory: int | None = None


@dataclass
class Starter(Daemon):
    """The platform, from its start to its end."""

    state: State
    options: Options
    reporter: Reporter
    supervisor: Supervisor = field(init=False)
    phase: str = "starting"
    _plane: ControlPlane | None = None

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.state.run, self.state.logs, self._write_state)
        self.site = Site(s3_is_ours=self.options.s3)
        self.s3 = S3(self.state, self.options.ports, Path(sys.executable).with_name("weed"))
        self.airflow = Airflow(self.state, self.options.ports)

    @property
    def folder(self) -> Folder:
        return self.state

    def _explain(self, error: Exception) -> str:
        return explain(error, self.state)

    # ----------------------------------------------------------------------------------------------------------------- up
    def _bring_up(self) -> None:
        killed = processes.sweep(self.state.run)
        if killed:
            self.reporter.note(f"ended {len(killed)} processes that an earlier start had left")
        check_space(self.state)
        base = base_environment()
        self._find_site(base)
        ports.check_free(self._used_ports(), {"s3": self.s3.host})
        if overlap := ports.ephemeral_overlap(self._used_ports()):
            self.reporter.note(overlap)
        self._write_state()
        if self.site.s3_is_ours:  # beside the control plane: it needs some seconds of its own
            self.s3.prepare()
            self.supervisor.start(self.s3.component(base))
        if self.site.kubeconfig is None:
            self._bring_up_kubernetes(base)
        if self.site.s3_is_ours:
            with self.reporter.phase("S3"):
                self.supervisor.wait_ready(["s3"], interrupted=self._stopping)
        if self.options.airflow:
            self._bring_up_airflow(base)

    def _find_site(self, base: Mapping[str, str]) -> None:
        """Reads the configuration (sync would refuse a wrong one too, after a minute of starting) and what it says of cluster and S3."""
        if not (self.options.airflow and self.options.sync) and self.options.cluster == EMBEDDED:
            return  # whoever wants the bare cluster needs no configuration
        found = configuration.read(self.options.config, self.options.cluster, base)
        self.site = sites.of(self.options.cluster, found, os.environ)
        if self.site.s3_port is not None:
            self.options = replace(self.options, ports={**self.options.ports, "s3": self.site.s3_port})
            self.s3 = replace(self.s3, ports=self.options.ports)
        self.s3 = replace(self.s3, host=self.site.s3_host)

    def _used_ports(self) -> dict[str, int]:
        return {name: port for name, port in self.options.ports.items() if self.site.uses_port(name)}

    def _bring_up_kubernetes(self, base: Mapping[str, str]) -> None:
        with self.reporter.phase("Kubernetes binary"):
            binary = kube_binary(self.state, base, self.reporter, self._stopping)
        plane = self._plane = control_plane.prepare(self.state, self.options.ports, binary, self.options.name, self.options.handed_out)
        self._write_state()
        with self.reporter.phase("Kubernetes control plane"):
            for component in plane.components(base, fsync=self.options.fsync):
                self.supervisor.start(component)
                if component.name in ("etcd", "kube-apiserver"):
                    self.supervisor.wait_ready([component.name], interrupted=self._stopping)
            plane.grant_rights()
        with self.reporter.phase("node"):
            self.supervisor.start(self._kubelet(plane, base))
            self.supervisor.wait_ready(["kube-controller-manager", "kube-scheduler", "kubelet"], interrupted=self._stopping)

    def _bring_up_airflow(self, base: Mapping[str, str]) -> None:
        self.airflow.prepare()
        environment = self.airflow.environment(base) | self.platform_environment()
        migration = self.airflow.migration(environment)
        if migration:
            with self.reporter.phase("Airflow's database"):
                self.supervisor.run_to_end(migration, interrupted=self._stopping)
                self.airflow.migrated()
        if self.options.sync:
            with self.reporter.phase("tenants", "trainyard sync"):
                self.supervisor.run_to_end(self._sync(environment), interrupted=self._stopping)
        self._start_airflow(environment)

    def _start_airflow(self, environment: Mapping[str, str]) -> None:
        self.airflow.prepare()  # with what sync wrote
        with self.reporter.phase("Airflow"):
            for component in self.airflow.components(environment):
                self.supervisor.start(component)
            self.supervisor.wait_ready(COMPONENTS, interrupted=self._stopping)

    def platform_environment(self) -> dict[str, str]:
        """What Airflow's side is told about this deployment (docs: the contract's environment)."""
        told = {
            "TRAINYARD_STATE": str(self.state.root),
            "TRAINYARD_CONFIG": str(self.options.config),
            "TRAINYARD_CLUSTER": self.options.cluster,
            "TRAINYARD_KUBECONFIG": self.site.kubeconfig or str(self.state.kube / "airflow.kubeconfig"),
            "TRAINYARD_SYNC_KUBECONFIG": self.site.sync_kubeconfig or str(self.state.kube / "sync.kubeconfig"),
            "TRAINYARD_S3_CREDENTIALS": self.site.s3_credentials or str(self.s3.admin_file),
        }
        if self.site.s3_is_ours:
            told["TRAINYARD_S3_ENDPOINT"] = self.s3.endpoint
        return told

    def _kubelet(self, plane: ControlPlane, base: Mapping[str, str]) -> Component:
        program = [
            sys.executable,
            "-m",
            "local.kubelet",
            "--kubeconfig",
            str(plane.kubeconfig("kubelet")),
            "--root",
            str(self.state.kubelet),
        ]
        program += [
            "--images",
            str(self.options.images),
            "--node",
            control_plane.NODE,
            "--port",
            str(self.options.ports["kubelet"]),
        ]
        program += ["--client-ca", str(plane.pki.ca)]
        if self.options.node_cpu:
            program += ["--cpu", str(self.options.node_cpu)]
        if self.options.node_memory:
            program += ["--memory", str(self.options.node_memory)]
        environment = {**base, "PYTHONPATH": str(CHECKOUT)}
        return Component("kubelet", program, self.state.kubelet, environment, 20.0, plane.node_ready, 60.0)

    def _sync(self, environment: Mapping[str, str]) -> Component:
        # Not the console script: it may be of another checkout whose environment this is.
        program = [sys.executable, "-c", "from trainyard.cli.main import app; app()", "sync", "--state", str(self.state.root)]
        return Component("sync", program, CHECKOUT, {**environment, "PYTHONPATH": str(CHECKOUT / "plugins")})

    # ------------------------------------------------------------------------------------------------------------ requests
    def _carry_out(self, request: Mapping[str, Any]) -> None:
        if request.get("do") != "restart":
            raise StackError(f"unknown request {request.get('do')!r}")
        self._restart(str(request.get("what")))

    def _restart(self, what: str) -> None:
        if what == "airflow":
            if not self.options.airflow:
                raise StackError("this platform was started without Airflow")
            with self.reporter.phase("stopping Airflow"):
                self.supervisor.stop(COMPONENTS)
            self._start_airflow(self.airflow.environment(base_environment()) | self.platform_environment())
            return
        running = self.supervisor.component(what)
        if running is None:
            raise StackError(
                f"there is no component {what!r}: they are {', '.join(self.supervisor.names())}, and `airflow` for all of its own"
            )
        with self.reporter.phase(what):
            self.supervisor.stop([what])
            self.supervisor.start(running)
            self.supervisor.wait_ready([what], interrupted=self._stopping)

    # ---------------------------------------------------------------------------------------------------------------- down
    def _take_down(self) -> None:
        """Users of a thing before the thing: Airflow, node, controllers, API server, etcd and S3 last."""
        self.phase = "stopping"
        self._write_state()
        groups: list[list[str]] = [
            list(COMPONENTS),
            ["kubelet"],
            ["kube-controller-manager", "kube-scheduler"],
            ["kube-apiserver"],
            ["etcd", "s3"],
        ]
        for group in groups:
            ours = "s3" in group and "s3" in self.supervisor.names()
            self.supervisor.stop(group)
            if ours:  # a start that was refused for a port that is taken must not touch its owner's
                self.s3.remove_sockets()
        self.phase = "down"
        self._write_state()

    # --------------------------------------------------------------------------------------------------------------- state
    def _write_state(self) -> None:
        plane = self._plane
        me = processes.Identity.of(os.getpid())
        value: dict[str, Any] = {
            "version": STATE_VERSION,
            "phase": self.phase,
            "state_dir": str(self.state.root),
            "starter": {"pid": me.pid, "started": me.started},
            "ports": dict(self.options.ports),
            "environment": self.platform_environment(),
            "components": self.supervisor.describe(),
        }
        if self.site.s3_is_ours:
            value["s3"] = {"endpoint": self.s3.endpoint, "admin_file": str(self.s3.admin_file), "region": REGION}
        if self.site.kubeconfig is not None:
            value["kubernetes"] = {"kubeconfig": self.site.kubeconfig, "airflow_kubeconfig": self.site.kubeconfig}
        elif plane:
            value["kubernetes"] = {
                "server": plane.server,
                "kubeconfig": str(plane.kubeconfig("admin")),
                "airflow_kubeconfig": str(plane.kubeconfig("airflow")),
                "binary": str(plane.binary),
            }
        if self.options.airflow:
            value["airflow"] = {
                "url": self.airflow.url,
                "home": str(self.airflow.home),
                "admin_user": ADMIN,
                "passwords_file": str(self.airflow.passwords_file),
                "environment_file": str(self.airflow.environment_file),
            }
        try:
            self.state.write(value)
        except OSError as error:  # a full disk must not keep us from stopping what runs
            log.error("cannot write %s: %s", self.state.file, error)


def base_environment() -> dict[str, str]:
    """The caller's environment without what is for it alone; the programs of this environment come first on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    programs = str(Path(sys.executable).parent)
    kept["PATH"] = programs + os.pathsep + kept.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    for name in ("NO_PROXY", "no_proxy"):  # everything of ours is on loopback
        kept[name] = ",".join(filter(None, [kept.get(name, ""), "127.0.0.1", "localhost"]))
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


def check_space(state: State, least: int = LEAST_SPACE) -> None:
    """Raises StackError when the state folder's disk is too full to start: half-written databases are worse than none."""
    free = shutil.disk_usage(state.root).free
    if free < least:
        raise StackError(
            f"no space left for the platform: {free >> 20} MiB are free on the disk of {state.root}, it takes {least >> 20} MiB to start; "
            "free some, or choose another place by --state DIR or TRAINYARD_STATE"
        )


def explain(error: Exception, state: State) -> str:
    """One line with the way out. A component that ended since the disk is full says so in words of its own: the disk is asked."""
    if str(error).startswith("no space left"):
        return str(error)
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if full or shutil.disk_usage(state.root).free < FULL:
        return f"no space left on the disk of {state.root}: free some, or choose another place by --state DIR or TRAINYARD_STATE"
    return str(error)
