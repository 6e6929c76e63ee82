"""The kubelet's own HTTPS server: what the API server asks for `kubectl logs`, and a clear refusal of exec, attach and port-forward.

Paths and parameters are those of kubernetes/pkg/kubelet/server. Who asks must show a client certificate of the authority given by
--client-ca (the API server has one by --kubelet-client-certificate); without that option it answers anyone on loopback, and says so.
"""

import datetime
import ipaddress
import logging
import os
import ssl
import threading
from pathlib import Path

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from local.kubelet import logs
from local.kubelet.container import Container
from local.kubelet.manager import PodManager
from local.kubelet.node import ADDRESS

log = logging.getLogger(__name__)

REFUSED = ("exec", "attach", "run", "portForward", "checkpoint")


def make_certificate(file: Path, node: str) -> None:
    """Write a new key and self-signed certificate of this server: the API server does not ask who signed a kubelet's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"), x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}")]
    )
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(node), x509.IPAddress(ipaddress.ip_address(ADDRESS))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(pem + certificate.public_bytes(serialization.Encoding.PEM))


class KubeletServer:
    """Serves the logs of the manager's pods."""

    def __init__(self, manager: PodManager) -> None:
        self._manager = manager
        refused = [Route(f"/{verb}/{{rest:path}}", self.refuse, methods=["GET", "POST"]) for verb in REFUSED]
        self.app = Starlette(
            routes=[
                Route("/healthz", lambda _: PlainTextResponse("ok")),
                Route("/containerLogs/{namespace}/{pod}/{container}", self.container_logs),
                *refused,
            ]
        )

    async def refuse(self, request: Request) -> Response:
        """Say by name what is not done."""
        verb = request.url.path.split("/")[1]
        return PlainTextResponse(
            f"the embedded kubelet does not do {verb}: its containers are processes of this machine (docs/embedded-kubelet.md)", 501
        )

    async def container_logs(self, request: Request) -> Response:
        """GET /containerLogs/{namespace}/{pod}/{container}: answers and wording as a kubelet's."""
        namespace, name, wanted = (request.path_params[key] for key in ("namespace", "pod", "container"))
        pod = self._manager.find(namespace, name)
        if pod is None:
            return PlainTextResponse(f'pod "{namespace}/{name}" not found', 404)
        container = next((item for item in pod.containers if item.name == wanted), None)
        if container is None:
            return PlainTextResponse(f'container "{wanted}" not found in pod "{name}"', 404)
        if request.query_params.get("previous") == "true":
            return PlainTextResponse(f'previous terminated container "{wanted}" in pod "{name}" not found', 400)
        try:
            query = logs.LogQuery.parse(dict(request.query_params), datetime.datetime.now(datetime.UTC))
        except logs.BadQuery as problem:
            return PlainTextResponse(str(problem), 422)
        if not container.log.exists():
            return PlainTextResponse(_no_log(container, name), 400)
        return StreamingResponse(logs.read(container.log, query, lambda: not container.active), media_type="text/plain")


def _no_log(container: Container, pod: str) -> str:
    waiting = container.shown.state.get("waiting")
    if waiting is None:
        return f'the log of container "{container.name}" in pod "{pod}" is gone'
    what = (
        "trying and failing to pull image"
        if waiting["reason"] in ("ErrImagePull", "ImagePullBackOff")
        else f"waiting to start: {waiting['reason']}"
    )
    return f'container "{container.name}" in pod "{pod}" is {what}'


def start(server: KubeletServer, port: int, certificate: Path, client_ca: Path | None) -> uvicorn.Server:
    """Serve on loopback from a thread of its own. Raises OSError where the port is taken."""
    config = uvicorn.Config(
        server.app,
        host=ADDRESS,
        port=port,
        ssl_certfile=str(certificate),
        ssl_keyfile=str(certificate),
        ssl_ca_certs=str(client_ca) if client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if client_ca else ssl.CERT_NONE,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    if client_ca is None:
        log.warning("no --client-ca: any process of this machine can read pods' logs at https://%s:%d", ADDRESS, port)
    # Bound here, so that a port already taken is an error of the start and not of a thread.
    listening = config.bind_socket()
    listening.listen()  # from now on who asks waits, also while the thread is not there yet
    running = uvicorn.Server(config)
    threading.Thread(target=running.run, args=([listening],), name="server", daemon=True).start()
    return running
