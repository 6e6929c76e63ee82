"""The master: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and the image registry, on the machine itself.

It is no node: no pod runs there. Nothing listens beyond the cluster's bridge and loopback.
"""

from __future__ import annotations

import datetime
import http.client
import json
import secrets
import socket
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local.stack.events import StackError
from local.stack.processes import listener
from local.stack.state import write_private
from local.stack.supervisor import Component
from local.threenode import needs
from local.threenode.api import Api
from local.threenode.keys import APISERVER, KUBELET_CLIENT, Keys
from local.threenode.layout import ClusterState
from local.threenode.plan import Plan

CONTROLLERS, SCHEDULER, APISERVER_NAME = "kube-controller-manager", "kube-scheduler", "kube-apiserver"
COMPONENTS = ("etcd", APISERVER_NAME, CONTROLLERS, SCHEDULER, "registry", "registry-nodes")
ENVIRONMENT = {"PATH": needs.SEARCH, "HOME": "/root", "LANG": "C.UTF-8"}
"""Nothing of the caller's: a proxy of the environment would be asked for the API server."""
IP_FREEBIND = 15  # linux/in.h


@dataclass(frozen=True)
class Master:
    """Files and flags of one cluster's master."""

    state: ClusterState
    plan: Plan
    keys: Keys
    binary: Path
    api: Api

    # ------------------------------------------------------------------------------------------------------- components
    def components(self) -> list[Component]:
        """In the order of COMPONENTS; the API server needs etcd, and the rest the API server."""
        etcd = self._etcd()
        return [etcd, self._apiserver(), self._controllers(), self._scheduler(), *self._registries()]

    def _component(self, name: str, words: list[str], ready: Callable[[datetime.datetime], bool], grace_s: float) -> Component:
        return Component(name, [str(self.binary), *words], self.state.etcd, ENVIRONMENT, grace_s, ready, 120.0)

    def _etcd(self) -> Component:
        """On Unix sockets in a folder of mode 0700: on TCP it would answer anyone on the machine. A socket's path may not be longer than
        107 bytes, so it is relative."""
        folder = self.state.etcd
        folder.mkdir(mode=0o700, exist_ok=True)
        client, peer = "unix://etcd.sock:0", "unix://peer.sock:0"
        words = ["etcd", "--name=kube-master", "--data-dir=data", f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        words += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=kube-master={peer}"]
        if not self.plan.fsync:
            words.append("--unsafe-no-fsync")

        def listens(since: datetime.datetime) -> bool:
            """The socket's file is this etcd's: a killed one leaves its own."""
            try:
                return (folder / "etcd.sock:0").stat().st_mtime >= since.timestamp()
            except OSError:
                return False

        return self._component("etcd", words, listens, 5.0)

    def _apiserver(self) -> Component:
        keys, plan = self.keys, self.plan
        words = [APISERVER_NAME, "--etcd-servers=unix://etcd.sock:0", f"--service-cluster-ip-range={plan.services}"]
        words += [f"--advertise-address={plan.master}", f"--bind-address={plan.master}", f"--secure-port={plan.ports['kube_apiserver']}"]
        words += [f"--client-ca-file={keys.authority}", "--anonymous-auth=false", "--authorization-mode=Node,RBAC", "--profiling=false"]
        words += [f"--tls-cert-file={keys.crt(APISERVER)}", f"--tls-private-key-file={keys.key(APISERVER)}"]
        words += [f"--service-account-key-file={keys.service_accounts}", f"--service-account-signing-key-file={keys.service_accounts}"]
        words += ["--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged=true"]
        words += ["--enable-admission-plugins=NodeRestriction,ResourceQuota,LimitRanger,PodSecurity"]
        words += [f"--kubelet-client-certificate={keys.crt(KUBELET_CLIENT)}", f"--kubelet-client-key={keys.key(KUBELET_CLIENT)}"]
        words += [f"--kubelet-certificate-authority={keys.authority}", "--kubelet-preferred-address-types=InternalIP"]
        return self._component(APISERVER_NAME, words, lambda since: self.api.ready(), 5.0)

    def _controllers(self) -> Component:
        keys, plan = self.keys, self.plan
        words = [CONTROLLERS, f"--kubeconfig={self._kubeconfig('controller-manager')}", "--leader-elect=false", "--profiling=false"]
        words += ["--use-service-account-credentials", f"--root-ca-file={keys.authority}"]
        words += [f"--service-account-private-key-file={keys.service_accounts}"]
        words += ["--allocate-node-cidrs", f"--cluster-cidr={plan.pods}", f"--service-cluster-ip-range={plan.services}"]
        words += [f"--cluster-signing-cert-file={keys.authority}", f"--cluster-signing-key-file={keys.authority_key}"]
        words += self._on_loopback("kube_controller_manager")
        return self._component(CONTROLLERS, words, lambda since: self._answers("kube_controller_manager"), 3.0)

    def _scheduler(self) -> Component:
        words = [SCHEDULER, f"--kubeconfig={self._kubeconfig('scheduler')}", "--leader-elect=false", "--profiling=false"]
        words += self._on_loopback("kube_scheduler")
        return self._component(SCHEDULER, words, lambda since: self._answers("kube_scheduler"), 3.0)

    def _on_loopback(self, port: str) -> list[str]:
        keys = self.keys
        words = ["--bind-address=127.0.0.1", f"--secure-port={self.plan.ports[port]}"]
        return [*words, f"--tls-cert-file={keys.crt(APISERVER)}", f"--tls-private-key-file={keys.key(APISERVER)}"]

    def _registries(self) -> list[Component]:
        """One store, two doors: people push to localhost, which an engine trusts without TLS; nodes pull the same name from the master."""
        port = self.plan.ports["registry"]
        secret = secrets.token_hex(24)  # carries an upload from one request to the next, through either door
        found = []
        for name, address in (("registry", "127.0.0.1"), ("registry-nodes", str(self.plan.master))):
            file = self.state.run / f"{name}.json"
            storage = {"filesystem": {"rootdirectory": str(self.state.registry)}, "delete": {"enabled": True}}
            http = {"addr": f"{address}:{port}", "secret": secret}
            document = {"version": 0.1, "log": {"level": "warn"}, "http": http, "storage": storage}
            write_private(file, json.dumps(document))  # JSON is YAML
            program = [needs.find("docker-registry") or "docker-registry", "serve", str(file)]
            ready = _connects(address, port)
            found.append(Component(name, program, self.state.registry, ENVIRONMENT, 3.0, ready, 30.0))
        return found

    def _kubeconfig(self, identity: str) -> Path:
        path = self.state.keys / f"{identity}.kubeconfig"
        write_private(path, self.keys.kubeconfig(identity, self.plan.server))
        return path

    # ------------------------------------------------------------------------------------------------------------ health
    def _answers(self, port: str) -> bool:
        context = ssl.create_default_context(cafile=str(self.keys.authority))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        try:
            with opener.open(f"https://127.0.0.1:{self.plan.ports[port]}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False


def _connects(host: str, port: int) -> Callable[[datetime.datetime], bool]:
    def ready(since: datetime.datetime) -> bool:
        try:
            socket.create_connection((host, port), 2).close()
        except OSError:
            return False
        return True

    return ready


def check_ports(plan: Plan) -> None:
    """Raises StackError for the first port that is taken: who has it, if that can be known, and the option that changes it."""
    master = str(plan.master)
    listens = [("kube_apiserver", master), ("kube_controller_manager", "127.0.0.1"), ("kube_scheduler", "127.0.0.1")]
    for name, host in [*listens, ("registry", "127.0.0.1"), ("registry", master)]:
        port = plan.ports[name]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for us
            probe.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)  # the bridge need not be there yet
            try:
                probe.bind((host, port))
            except OSError as error:
                who = listener(port)
                owner = f" by pid {who[0]} ({who[1]})" if who else ""
                service = ""
                if who and "docker-registry" in who[1]:
                    service = " (Debian's package starts one of its own: `systemctl disable --now docker-registry`)"
                raise StackError(
                    f"port {port} of {host}, for {name}, is taken{owner}: stop that{service}, or choose another by --port {name}=N"
                ) from error
