"""Kubernetes' own control plane on loopback, without root: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, all from
one binary (local/kube), and the identities that may talk to it.

Nothing here emulates Kubernetes: it only writes flags, tokens and kubeconfigs. etcd listens on Unix sockets in a folder of mode 0700,
since on TCP it would answer anyone on the machine.
"""

from __future__ import annotations

import base64
import csv
import datetime
import http.client
import io
import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local import rights
from local.stack import certificates
from local.stack.certificates import APISERVER, KUBELET_CLIENT, Pki
from local.stack.events import StackError
from local.stack.state import State, write_private
from local.stack.supervisor import Component

NODE = "local"
SERVICE_RANGE = "10.97.0.0/16"  # needed by the API server; nothing answers there: no kube-proxy
IDENTITIES: dict[str, tuple[str, str]] = {
    # kubeconfig's name: (user, group)
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "airflow": (rights.RUN, rights.GROUP),
    "sync": (rights.SYNC, rights.GROUP),
}
"""`airflow` and `sync` are the ServiceAccounts of deploy/rbac by their names, with a token that does not end: their rights are those of any
other cluster."""
HANDED_OUT = ("airflow", "sync")
"""Those that Airflow's side is given, wherever it is."""


@dataclass(frozen=True)
class ControlPlane:
    """The files and addresses of one embedded control plane."""

    state: State
    ports: Mapping[str, int]
    binary: Path
    pki: Pki
    tokens: Mapping[str, str]
    name: str | None = None
    """By which it is reached from elsewhere; None: it listens on loopback alone."""

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube_apiserver']}"

    def kubeconfig(self, identity: str) -> Path:
        return self.state.kube / f"{identity}.kubeconfig"

    # ----------------------------------------------------------------------------------------------------- components
    def components(self, environment: Mapping[str, str], *, fsync: bool = True) -> list[Component]:
        """etcd, the API server, the controllers, the scheduler: to be started in this order, each when the one before is ready."""
        folder = self.state.kube
        etcd_folder = folder / "etcd"
        etcd_folder.mkdir(mode=0o700, exist_ok=True)
        etcd_folder.chmod(0o700)
        socket = "unix://etcd.sock:0"  # relative: a socket's path may not be longer than 107 bytes
        peer = "unix://peer.sock:0"
        etcd = ["etcd", "--name=local", "--data-dir=data", f"--listen-client-urls={socket}", f"--advertise-client-urls={socket}"]
        etcd += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=local={peer}"]
        etcd += ["--quota-backend-bytes=2147483648", "--snapshot-count=10000"]
        if not fsync:
            etcd.append("--unsafe-no-fsync")
        run, secure = self.pki, self.ports
        bind = "0.0.0.0" if self.name else "127.0.0.1"
        key = run.service_account_key
        apiserver = ["kube-apiserver", f"--etcd-servers={socket}", f"--bind-address={bind}", f"--secure-port={secure['kube_apiserver']}"]
        apiserver += ["--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", f"--service-cluster-ip-range={SERVICE_RANGE}"]
        apiserver += [f"--tls-cert-file={run.crt(APISERVER)}", f"--tls-private-key-file={run.key(APISERVER)}"]
        apiserver += [
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--anonymous-auth=false",
            "--authorization-mode=Node,RBAC",
            "--profiling=false",
        ]
        apiserver += [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
        apiserver += ["--service-account-issuer=https://kubernetes.default.svc"]
        apiserver += ["--enable-admission-plugins=NodeRestriction,ResourceQuota,LimitRanger,PodSecurity"]
        apiserver += ["--kubelet-preferred-address-types=InternalIP"]
        apiserver += [f"--kubelet-client-certificate={run.crt(KUBELET_CLIENT)}", f"--kubelet-client-key={run.key(KUBELET_CLIENT)}"]
        controllers = ["kube-controller-manager", f"--kubeconfig={self.kubeconfig('controller-manager')}", "--leader-elect=false"]
        controllers += [f"--service-account-private-key-file={key}", f"--root-ca-file={run.ca}", "--use-service-account-credentials"]
        controllers += ["--bind-address=127.0.0.1", f"--secure-port={secure['kube_controller_manager']}", "--profiling=false"]
        controllers += [f"--tls-cert-file={run.crt(APISERVER)}", f"--tls-private-key-file={run.key(APISERVER)}"]
        scheduler = ["kube-scheduler", f"--kubeconfig={self.kubeconfig('scheduler')}", "--leader-elect=false", "--bind-address=127.0.0.1"]
        scheduler += [f"--secure-port={secure['kube_scheduler']}", "--profiling=false"]
        scheduler += [f"--tls-cert-file={run.crt(APISERVER)}", f"--tls-private-key-file={run.key(APISERVER)}"]

        def listens(since: datetime.datetime) -> bool:
            """The socket's file is this etcd's: a killed one leaves its own."""
            try:
                return (etcd_folder / "etcd.sock:0").stat().st_mtime >= since.timestamp()
            except OSError:
                return False

        def component(name: str, flags: list[str], ready: Callable[[datetime.datetime], bool], grace_s: float) -> Component:
            return Component(name, [str(self.binary), *flags], etcd_folder, environment, grace_s, ready, 90.0)

        return [
            component("etcd", etcd, listens, 5.0),
            component("kube-apiserver", apiserver, lambda since: self.ready(), 5.0),
            component("kube-controller-manager", controllers, lambda since: self._answers("kube_controller_manager", "/healthz"), 3.0),
            component("kube-scheduler", scheduler, lambda since: self._answers("kube_scheduler", "/healthz"), 3.0),
        ]

    # ------------------------------------------------------------------------------------------------------------ health
    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = 5.0, kind: str = "application/json"
    ) -> dict[str, Any]:
        """One call to the API as `admin`; the object that came back. Raises urllib.error.HTTPError and OSError."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}", "Content-Type": kind, "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self.server + path, data=data, method=method, headers=headers)
        with _opener(self.pki.ca).open(call, timeout=timeout_s) as answer:
            value = json.load(answer)
        return value if isinstance(value, dict) else {}

    def ready(self) -> bool:
        """The API server answers /readyz, etcd and its post-start hooks included."""
        return self._answers("kube_apiserver", "/readyz")

    def node_ready(self, since: datetime.datetime | None = None) -> bool:
        """The node says Ready and, with `since`, has renewed its Lease after that: the API remembers a dead kubelet's Ready for 40 s."""
        try:
            node = self.request("GET", f"/api/v1/nodes/{NODE}")
            lease = self.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")
        except (OSError, ValueError, http.client.HTTPException):
            return False
        renewed = lease.get("spec", {}).get("renewTime")
        if since and (not renewed or datetime.datetime.fromisoformat(renewed) < since):
            return False
        return any(c.get("type") == "Ready" and c.get("status") == "True" for c in node.get("status", {}).get("conditions", []))

    def all_pods(self) -> list[str]:
        """namespace/name of every pod there is, ended ones too."""
        items = self.request("GET", "/api/v1/pods").get("items", [])
        return sorted(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in items)

    def _answers(self, port: str, path: str) -> bool:
        call = urllib.request.Request(
            f"https://127.0.0.1:{self.ports[port]}{path}", headers={"Authorization": f"Bearer {self.tokens['admin']}"}
        )
        try:
            with _opener(self.pki.ca).open(call, timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def grant_rights(self) -> None:
        """Applies deploy/rbac, as an administrator does by `kubectl apply` on any other cluster. Raises StackError."""
        for manifest in rights.manifests(shared_ports=True):
            path = f"{rights.path_of(manifest)}?fieldManager=trainyard-up&force=true"
            try:
                self.request("PATCH", path, manifest, kind="application/apply-patch+yaml")
            except urllib.error.HTTPError as error:
                what, words = f"{manifest['kind']} {manifest['metadata']['name']}", error.read().decode(errors="replace")[:500]
                raise StackError(f"{rights.FOLDER}: the API server refuses {what}: {words}") from error


def _opener(ca: Path) -> urllib.request.OpenerDirector:
    """Trusts our CA alone and passes over any proxy of the environment: everything here is on loopback."""
    context = ssl.create_default_context(cafile=str(ca))
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def prepare(state: State, ports: Mapping[str, int], binary: Path, name: str | None = None, handed_out: Path | None = None) -> ControlPlane:
    """Writes keys, tokens and kubeconfigs (kept over restarts: a running client stays valid) and returns the control plane to start.

    With a `name`, it is reached by it from elsewhere: `handed_out` is a folder for the kubeconfigs of those who do.
    """
    pki = certificates.ensure(state.kube / "pki", [name] if name else [])
    path = state.kube / "tokens.csv"
    tokens = _read_tokens(path)
    if set(tokens) != set(IDENTITIES):
        tokens = {identity: tokens.get(identity) or secrets.token_hex(24) for identity in IDENTITIES}
        table = io.StringIO()
        for identity, (user, group) in IDENTITIES.items():
            csv.writer(table, lineterminator="\n").writerow([tokens[identity], user, identity, *([group] if group else [])])
        write_private(path, table.getvalue())
    plane = ControlPlane(state, ports, binary, pki, tokens, name)
    authority = base64.b64encode(pki.ca.read_bytes()).decode()
    for identity in IDENTITIES:
        write_private(plane.kubeconfig(identity), _kubeconfig(identity, plane.server, authority, tokens[identity]))
    if name and handed_out:
        for identity in HANDED_OUT:
            server = f"https://{name}:{ports['kube_apiserver']}"
            write_private(handed_out / f"{identity}.kubeconfig", _kubeconfig(identity, server, authority, tokens[identity]))
    return plane


def _kubeconfig(identity: str, server: str, authority: str, token: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": identity}}],
        "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": identity, "user": {"token": token}}],
    }
    return json.dumps(config, indent=2) + "\n"


def _read_tokens(path: Path) -> dict[str, str]:
    """Identity -> token, from the uid column; {} where there is no file yet."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return {}
    return {row[2]: row[0] for row in rows if len(row) >= 3}
