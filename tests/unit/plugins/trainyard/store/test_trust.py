"""A server whose certificate a company's own authority has signed: taken with that authority's bundle, refused without."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trainyard.errors import UnavailableError
from trainyard.store import Store


class Accepting(http.server.BaseHTTPRequestHandler):
    """Says yes to every PUT."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, which is its own authority: (certificate, key)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "site")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "site.pem", tmp_path / "site.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return files


@pytest.fixture
def store(certificate: tuple[Path, Path]) -> Iterator[Store]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Accepting) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Store("bucket", f"https://127.0.0.1:{server.server_port}", "us-east-1", "a", "b", str(certificate[0]))
        server.shutdown()
        thread.join()


def test_the_bundle_decides_whom_we_trust(store: Store) -> None:
    assert store.put_json("x", {}, if_none_match=True)
    with pytest.raises(UnavailableError, match=r"(?i)certificate"):
        replace(store, ca_bundle=None).put_json("x", {}, if_none_match=True)
