"""The starter's client against a server of the cluster's own certificates: who it trusts, who it is, what it asks."""

from __future__ import annotations

import datetime
import json
import ssl
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from local.threenode import keys
from local.threenode.api import Api
from local.threenode.plan import Plan

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Server:
    """Answers by path; remembers what was asked and by whom."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.keys = keys.ensure(folder, Plan())
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str, str | None, Any]] = []
        self.users: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, self.path, self.headers.get("Content-Type"), body))
                subject = dict(pair for group in self.connection.getpeercert()["subject"] for pair in group)  # type: ignore[attr-defined]
                outer.users.add(f"{subject['commonName']}/{subject['organizationName']}")
                found = outer.answers.get(self.path.split("?")[0])
                self.send_response(200 if found is not None else 404)
                self.end_headers()
                self.wfile.write((found if isinstance(found, str) else json.dumps(found or {})).encode())

            do_GET = do_PATCH = answer

            def log_message(self, *_: Any) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.keys.crt("apiserver"), self.keys.key("apiserver"))
        context.load_verify_locations(self.keys.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()
        self.api = Api(f"https://127.0.0.1:{self.http.server_address[1]}", self.keys)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody there: it must not be asked
    made = Server(tmp_path / "keys")
    yield made
    made.close()


def test_an_object_is_applied_as_the_administrator_under_our_name(server: Server) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/coredns"
    server.answers[path] = {}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coredns", "namespace": "kube-system"}}
    server.api.apply(manifest)
    assert server.asked == [("PATCH", f"{path}?fieldManager=trainyard-threenode&force=true", "application/apply-patch+yaml", manifest)]
    assert server.users == {"trainyard-admin/system:masters"}
    with pytest.raises(urllib.error.HTTPError):
        server.api.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"}})


def test_a_server_of_another_authority_is_not_believed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    stranger = Api(server.api.server, keys.ensure(tmp_path / "others", Plan()))
    server.answers["/readyz"] = "ok"
    assert server.api.ready()
    assert not stranger.ready()


def node(ready: str) -> dict[str, Any]:
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {"spec": {"podCIDR": "10.245.0.0/24"}, "status": {"conditions": conditions}}


LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kube-node1"


@pytest.mark.parametrize(
    ("ready", "renewed", "well"),
    [
        ("True", NOW + datetime.timedelta(seconds=1), True),
        ("True", NOW - datetime.timedelta(seconds=1), False),
        ("True", None, False),
        ("Unknown", NOW + datetime.timedelta(seconds=1), False),
    ],
)
def test_a_node_is_ready_when_it_has_spoken_since_its_start(
    server: Server, ready: str, renewed: datetime.datetime | None, well: bool
) -> None:
    server.answers["/api/v1/nodes/kube-node1"] = node(ready)
    server.answers[LEASE] = {"spec": {"renewTime": renewed.isoformat().replace("+00:00", "Z")} if renewed else {}}
    assert server.api.node_ready("kube-node1", NOW) is well
    assert server.api.pod_range("kube-node1") == "10.245.0.0/24"


def test_a_node_that_there_is_not_is_not_ready(server: Server) -> None:
    assert not server.api.node_ready("kube-node1")
    assert server.api.pod_range("kube-node1") is None


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}, True),
        ({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}, False),
        ({"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2}, False),
        ({}, False),
    ],
)
def test_a_deployment_is_ready_in_its_newest_generation(server: Server, status: dict[str, int], ready: bool) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
    server.answers[path] = {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}
    assert server.api.deployment_ready("kube-system", "coredns") is ready
