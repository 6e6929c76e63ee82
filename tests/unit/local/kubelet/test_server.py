from __future__ import annotations

import asyncio
import datetime
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from local.kubelet import server
from local.kubelet.images import Images
from local.kubelet.manager import PodManager
from local.kubelet.node import Capacity
from local.kubelet.server import KubeletServer
from local.kubelet.start import Starter
from tests.unit.local.kubelet.bench import Reporter, container
from tests.unit.local.kubelet.conftest import FakeApi, FakeProcesses, pod_document

LOG = "/containerLogs/ns/p/main"


@pytest.fixture
def manager(api: FakeApi, images: Images, tmp_path: Path) -> PodManager:
    """One pod, `ns/p`, that printed three lines and ended."""
    folder = tmp_path / "pods"
    home = folder / "u-1" / "containers" / "main"
    home.mkdir(parents=True)
    (home / "log").write_text("".join(f"2026-01-01T00:00:0{n}.000000000Z stdout F line {n}\n" for n in range(3)))
    starter = Starter(api, FakeProcesses(), images, Capacity(4, 1 << 30), lambda uid: None)  # type: ignore[arg-type]
    manager = PodManager(folder, starter, Reporter())
    ended = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]}
    manager.told("ADDED", pod_document(container(), status=ended))
    waits = {"phase": "Pending", "containerStatuses": []}
    manager.told("ADDED", pod_document(container(), uid="u-2", metadata={"name": "waiting", "namespace": "ns", "uid": "u-2"}, status=waits))
    return manager


class Caller:
    """Asks the server's application without a network."""

    def __init__(self, manager: PodManager) -> None:
        self._app = KubeletServer(manager).app

    def get(self, path: str, params: dict[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="https://kubelet") as client:
                return await client.get(path, params=params)

        return asyncio.run(ask())


@pytest.fixture
def caller(manager: PodManager) -> Caller:
    return Caller(manager)


def test_logs(caller: Caller) -> None:
    answer = caller.get(LOG, params={"tailLines": "2", "timestamps": "true"})
    assert answer.status_code == 200
    assert answer.text == "2026-01-01T00:00:01.000000000Z line 1\n2026-01-01T00:00:02.000000000Z line 2\n"
    assert caller.get(LOG, params={"follow": "true"}).text == "line 0\nline 1\nline 2\n"


@pytest.mark.parametrize(
    ("path", "query", "status", "words"),
    [
        ("/containerLogs/ns/none/main", {}, 404, 'pod "ns/none" not found'),
        ("/containerLogs/ns/p/none", {}, 404, 'container "none" not found in pod "p"'),
        (LOG, {"previous": "true"}, 400, "previous terminated container"),
        (LOG, {"tailLines": "many"}, 422, "tailLines"),
        ("/containerLogs/ns/waiting/main", {}, 400, 'container "main" in pod "waiting" is waiting to start: ContainerCreating'),
        ("/exec/ns/p/main", {}, 501, "does not do exec"),
        ("/portForward/ns/p", {}, 501, "does not do portForward"),
        ("/attach/ns/p/main", {}, 501, "does not do attach"),
    ],
)
def test_refusals(caller: Caller, path: str, query: dict[str, str], status: int, words: str) -> None:
    answer = caller.get(path, params=query)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_the_log_of_a_pod_that_is_gone(caller: Caller, manager: PodManager, tmp_path: Path) -> None:
    (tmp_path / "pods" / "u-1" / "containers" / "main" / "log").unlink()
    answer = caller.get(LOG)
    assert (answer.status_code, answer.text) == (400, 'the log of container "main" in pod "p" is gone')


class Authority:
    """A certificate authority for one test."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self._sign(self.name, self.key, ca=True).public_bytes(serialization.Encoding.PEM))

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
        return builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True).sign(self.key, hashes.SHA256())

    def client(self) -> Path:
        """A key and certificate of somebody this authority knows."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api-server")]), key, ca=False)
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file = self.folder / f"client-of-{self.file.stem}.pem"
        file.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
        return file


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def guarded(manager: PodManager, tmp_path: Path, port: int) -> Iterator[Authority]:
    """The server on a real port, open to the clients of one authority."""
    authority = Authority(tmp_path, "ours")
    server.make_certificate(tmp_path / "tls.pem", "local")
    running = server.start(KubeletServer(manager), port, tmp_path / "tls.pem", authority.file)
    yield authority
    running.should_exit = True


def ask(port: int, certificate: Path | None) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    try:
        connection.request("GET", LOG + "?tailLines=1")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_only_who_shows_a_certificate_of_the_authority_is_answered(guarded: Authority, port: int, tmp_path: Path) -> None:
    assert ask(port, guarded.client()) == "line 2\n"
    for certificate in (None, Authority(tmp_path, "theirs").client()):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(port, certificate)


def test_the_servers_own_certificate(tmp_path: Path) -> None:
    server.make_certificate(tmp_path / "tls.pem", "node-7")
    assert (tmp_path / "tls.pem").stat().st_mode & 0o077 == 0
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert names.get_values_for_type(x509.DNSName) == ["node-7"]
