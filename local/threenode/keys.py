"""The cluster's keys: one authority, which signs the API server, the nodes and every client; and the key of service-account tokens.

Clients are known by certificate, as with kubeadm: the common name is the user, the organisation its group.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from local import rights
from local.stack.certificates import RENEW_BEFORE, certificate_builder, distinguished_name
from local.stack.state import write_private
from local.threenode.plan import Node, Plan

ADMIN, RUN, SYNC = "admin", "run", "sync"
"""Who has a kubeconfig for people and for Trainyard."""
APISERVER, KUBELET_CLIENT = "apiserver", "apiserver-kubelet-client"
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
CLIENTS: Mapping[str, tuple[str, str | None]] = {
    # file: (user, group)
    ADMIN: ("trainyard-admin", "system:masters"),
    KUBELET_CLIENT: ("kube-apiserver-kubelet-client", None),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "kube-proxy": ("system:kube-proxy", None),
    "flannel": ("trainyard:flannel", None),
    "kube-router": ("trainyard:kube-router", None),
    RUN: (rights.RUN, rights.GROUP),
    SYNC: (rights.SYNC, rights.GROUP),
}
"""But for the administrator's, what each may do is a ClusterRole (Kubernetes' own, or addons.py's), or that of deploy/rbac."""


@dataclass(frozen=True)
class Keys:
    """Where the files are; all PEM, readable by root alone."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def service_accounts(self) -> Path:
        return self.folder / "service-accounts.key"

    def crt(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, name: str, server: str) -> str:
        """With everything in it, so that it works wherever it is copied to."""

        def encoded(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        user = {"client-certificate-data": encoded(self.crt(name)), "client-key-data": encoded(self.key(name))}
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "threenode",
            "contexts": [{"name": "threenode", "context": {"cluster": "threenode", "user": name}}],
            "clusters": [{"name": "threenode", "cluster": {"server": server, "certificate-authority-data": encoded(self.authority)}}],
            "users": [{"name": name, "user": user}],
        }
        return json.dumps(document, indent=2) + "\n"


def ensure(folder: Path, plan: Plan) -> Keys:
    """A whole set for this plan. It is made anew where one is absent, half-made, of other addresses, or about to run out."""
    keys = Keys(folder)
    addresses = [str(plan.master), str(plan.kubernetes_service), [str(node.address) for node in plan.all_nodes()]]
    stamp = json.dumps({"clients": CLIENTS, "plan": addresses})
    if not _sound(keys, stamp):
        _make(keys, plan, stamp)
    return keys


def _sound(keys: Keys, stamp: str) -> bool:
    try:
        if (keys.folder / "made.json").read_text(encoding="utf-8") != stamp:
            return False
        ends = x509.load_pem_x509_certificate(keys.authority.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return False
    return ends > datetime.datetime.now(datetime.UTC) + RENEW_BEFORE


def _make(keys: Keys, plan: Plan, stamp: str) -> None:
    (keys.folder / "made.json").unlink(missing_ok=True)  # it comes back last: a set without it is half-made
    authority = _Authority.new()
    write_private(keys.authority_key, _pem(authority.key))
    write_private(keys.authority, authority.certificate.public_bytes(serialization.Encoding.PEM).decode())
    addresses = [ipaddress.IPv4Address("127.0.0.1"), plan.master, plan.kubernetes_service]
    authority.issue(keys, APISERVER, ("kube-apiserver", None), SERVER_NAMES, addresses)
    for name, subject in CLIENTS.items():
        authority.issue(keys, name, subject)
    for node in plan.all_nodes():
        authority.issue(keys, node.name, (node_user(node), "system:nodes"), [node.name], [node.address])
    if not keys.service_accounts.is_file():  # tokens that pods have stay valid
        write_private(keys.service_accounts, _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    write_private(keys.folder / "made.json", stamp)


def node_user(node: Node) -> str:
    """As the Node authorizer wants it."""
    return f"system:node:{node.name}"


@dataclass(frozen=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> _Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = distinguished_name("trainyard threenode", None)
        builder = certificate_builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    def issue(
        self,
        keys: Keys,
        name: str,
        subject: tuple[str, str | None],
        names: Sequence[str] = (),
        addresses: Sequence[IPv4Address] = (),
    ) -> None:
        """A client's certificate; with names or addresses a server's too."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = certificate_builder(distinguished_name(*subject), self.certificate.subject, key.public_key())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if names or addresses:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            general = [*(x509.DNSName(one) for one in names), *(x509.IPAddress(one) for one in addresses)]
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        write_private(keys.key(name), _pem(key))
        write_private(keys.crt(name), builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode())


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    # "BEGIN EC/RSA PRIVATE KEY": KCM's signer of certificates takes only that.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
