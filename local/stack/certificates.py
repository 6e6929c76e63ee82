"""Keys and certificates of the embedded cluster: one CA that signs the API server's certificate and its client certificate for the
kubelet; and the key that signs service-account tokens. Made once, renewed before they run out. (The kubelet's own server certificate
is self-signed, as Kubernetes' default is: on loopback the question is who asks it, not whom one asks.)"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local.stack.state import write_private

LIFE = datetime.timedelta(days=3650)
RENEW_BEFORE = datetime.timedelta(days=30)
NAMES = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
ADDRESSES = ["127.0.0.1", "10.97.0.1"]


@dataclass(frozen=True)
class Pki:
    """Where the files are; `*_crt` and `*_key` are PEM."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def crt(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "service-account.key"


APISERVER, KUBELET_CLIENT = "apiserver", "apiserver-kubelet-client"


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def distinguished_name(common: str, organisation: str | None = None) -> x509.Name:
    """User and group, as Kubernetes reads a client's certificate."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organisation:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(attributes)


def certificate_builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    """A certificate that lives for LIFE, to be extended and signed."""
    now = datetime.datetime.now(datetime.UTC)
    # An hour back: a machine whose clock was just set right must not refuse its own certificates.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFE)
    )


def _sound(pki: Pki, names: Sequence[str]) -> bool:
    """All files are there, none runs out soon, and the API server's is for all these names."""
    files = [pki.ca, pki.service_account_key] + [f(n) for n in (APISERVER, KUBELET_CLIENT) for f in (pki.crt, pki.key)]
    if not all(path.is_file() for path in files):
        return False
    alternative = x509.load_pem_x509_certificate(pki.crt(APISERVER).read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    if not set(names) <= set(alternative.value.get_values_for_type(x509.DNSName)):
        return False
    soon = datetime.datetime.now(datetime.UTC) + RENEW_BEFORE
    return all(
        x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc > soon
        for path in [pki.ca, *(pki.crt(n) for n in (APISERVER, KUBELET_CLIENT))]
    )


def ensure(folder: Path, more_names: Sequence[str] = ()) -> Pki:
    """Returns a whole set, making it where it is absent, half-made or about to run out. The service-account key is kept if it can be.

    `more_names` are names of the API server beside those of loopback.
    """
    names = [*NAMES, *more_names]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    pki = Pki(folder)
    if _sound(pki, names):
        return pki
    pki.ca.unlink(missing_ok=True)  # it comes back last: a set without it is half-made
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = distinguished_name("trainyard embedded cluster")
    basic = x509.BasicConstraints(ca=True, path_length=0)
    root = certificate_builder(issuer, issuer, authority.public_key()).add_extension(basic, critical=True).sign(authority, hashes.SHA256())
    alternative = x509.SubjectAlternativeName(
        [*(x509.DNSName(name) for name in names), *(x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES)]
    )
    subjects = {
        APISERVER: (distinguished_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH),
        KUBELET_CLIENT: (distinguished_name("kube-apiserver-kubelet-client", "trainyard:kubelet-clients"), ExtendedKeyUsageOID.CLIENT_AUTH),
    }
    for name, (subject, usage) in subjects.items():
        key = ec.generate_private_key(ec.SECP256R1())
        builder = certificate_builder(subject, issuer, key.public_key()).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if usage == ExtendedKeyUsageOID.SERVER_AUTH:
            builder = builder.add_extension(alternative, critical=False)
        write_private(pki.key(name), _pem(key))
        write_private(pki.crt(name), builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode())
    if not pki.service_account_key.is_file():
        write_private(pki.service_account_key, _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    write_private(pki.ca, root.public_bytes(serialization.Encoding.PEM).decode())
    return pki
