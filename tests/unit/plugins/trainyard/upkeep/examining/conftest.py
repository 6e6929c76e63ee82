"""An API server that says what a test wants, over real TLS on loopback; and the sample configuration with a kubeconfig that names it."""

from __future__ import annotations

import base64
import dataclasses
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from local.stack import certificates
from trainyard.settings import Settings, load
from trainyard.upkeep.examining.patient import Patient

CHECKOUT = Path(__file__).parents[6]
Answer = tuple[int, Any]


@dataclass
class ApiServer:
    """What it answers, by method and path, and what it was asked."""

    folder: Path
    port: int = 0
    answers: dict[tuple[str, str], Answer | Callable[[Any], Answer]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    date: str | None = None
    """In place of the true time."""

    def kubeconfig(self, *, host: str = "127.0.0.1", port: int | None = None, authority: Path | None = None) -> str:
        """A kubeconfig that names it, or something else in its place."""
        ca = base64.b64encode((authority or self.folder / "pki" / "ca.crt").read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": f"https://{host}:{port or self.port}", "certificate-authority-data": ca}}],
            "users": [{"name": "x", "user": {"token": "a-token"}}],
        }
        path = self.folder / f"kubeconfig-{host}-{port or self.port}-{'other' if authority else 'own'}"
        path.write_text(json.dumps(config))
        return str(path)

    def knows(self, user: str = "admin") -> None:
        """Let it know who asks."""
        told = {"status": {"userInfo": {"username": user}}}
        self.answers["POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"] = (201, told)

    def has(self, path: str, *items: dict[str, Any]) -> None:
        """Let it list these objects at a path."""
        self.answers["GET", path] = (200, {"items": list(items)})

    def version(self, minor: str) -> None:
        """Let it be of this version."""
        told = {name: "" for name in ("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform")}
        self.answers["GET", "/version/"] = (200, {**told, "major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = urlsplit(self.path).path
            server.asked.append((self.command, path, body))
            found = server.answers.get(
                (self.command, path), (404, {"kind": "Status", "reason": "NotFound", "message": f"nothing at {path}"})
            )
            status, answer = found(body) if callable(found) else found
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_PATCH = _serve

        def date_time_string(self, timestamp: float | None = None) -> str:
            return server.date or super().date_time_string(timestamp)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that does not trust us breaks off: that is what some tests are about."""


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[ApiServer]:
    """The server, running."""
    pki = certificates.ensure(tmp_path / "pki")
    made = ApiServer(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.crt(certificates.APISERVER), pki.key(certificates.APISERVER))
    listening = _Quiet(("127.0.0.1", 0), _handler(made))
    listening.socket = context.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
    made.port = listening.server_port
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    listening.shutdown()
    listening.server_close()
    thread.join(timeout=10)


@pytest.fixture
def settings(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The sample configuration, with the embedded profile on that server."""
    for name in ("TRAINYARD_KUBECONFIG", "TRAINYARD_SYNC_KUBECONFIG", "TRAINYARD_S3_ENDPOINT", "TRAINYARD_S3_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    return on(load(CHECKOUT / "config", environ={}), kubeconfig=api_server.kubeconfig())


def on(settings: Settings, **profile: Any) -> Settings:
    """The settings with other values in the cluster's profile."""
    return dataclasses.replace(settings, cluster=settings.cluster.model_copy(update=profile))


@pytest.fixture
def patient(settings: Settings) -> Patient:
    """A patient on that server."""
    return Patient(settings)
