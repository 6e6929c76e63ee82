"""The cluster's keys: who signs whom, for what, and when a set is made anew."""

from __future__ import annotations

import base64
import json
import stat
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local.threenode import keys
from local.threenode.plan import Plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    made.mkdir(mode=0o700)
    return made


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def subject(certificate: x509.Certificate) -> tuple[str, list[str]]:
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(common), [str(one.value) for one in groups]


def test_every_certificate_is_the_authoritys_and_only_the_administrator_passes_over_rbac(folder: Path) -> None:
    made = keys.ensure(folder, Plan())
    authority = load(made.authority)
    names = [path.stem for path in folder.glob("*.crt") if path.stem != "ca"]
    assert sorted(names) == sorted(["apiserver", "kube-node1", "kube-node2", *keys.CLIENTS])
    for name in names:
        load(made.crt(name)).verify_directly_issued_by(authority)
    masters = [name for name in names if "system:masters" in subject(load(made.crt(name)))[1]]
    assert masters == ["admin"]


def test_a_node_is_who_the_node_authorizer_wants_and_serves_under_its_address(folder: Path) -> None:
    plan = Plan()
    made = keys.ensure(folder, plan)
    certificate = load(made.crt("kube-node2"))
    assert subject(certificate) == ("system:node:kube-node2", ["system:nodes"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [IPv4Address("172.31.254.12")]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH} == set(usages)


def test_a_client_cannot_serve(folder: Path) -> None:
    made = keys.ensure(folder, Plan())
    usages = load(made.crt("flannel")).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_api_server_is_known_by_all_names_that_it_is_called_by(folder: Path) -> None:
    made = keys.ensure(folder, Plan())
    names = load(made.crt("apiserver")).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(one) for one in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "172.31.254.1", "10.98.0.1"}
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_whole_set_of_the_same_plan_is_kept(folder: Path) -> None:
    keys.ensure(folder, Plan())
    before = contents(folder)
    keys.ensure(folder, Plan(cpus=1.0))
    assert contents(folder) == before


@pytest.mark.parametrize("change", ["address", "half-made", "torn"])
def test_another_set_is_made_anew_but_for_the_key_of_tokens(folder: Path, change: str) -> None:
    keys.ensure(folder, Plan())
    before = contents(folder)
    plan = Plan()
    if change == "address":
        plan = Plan(subnet=IPv4Network("172.31.200.0/24"))
    elif change == "half-made":
        (folder / "made.json").unlink()
    else:
        (folder / "ca.crt").write_text("-----BEGIN")
    made = keys.ensure(folder, plan)
    after = contents(folder)
    assert after["ca.key"] != before["ca.key"]
    assert after["service-accounts.key"] == before["service-accounts.key"]
    load(made.crt("admin")).verify_directly_issued_by(load(made.authority))


def test_secrets_are_roots_alone(folder: Path) -> None:
    keys.ensure(folder, Plan())
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_kubeconfig_holds_all_it_needs(folder: Path) -> None:
    plan = Plan()
    made = keys.ensure(folder, plan)
    document = json.loads(made.kubeconfig("scheduler", plan.server))
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    assert cluster["server"] == "https://172.31.254.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == made.authority.read_bytes()
    assert base64.b64decode(user["client-certificate-data"]) == made.crt("scheduler").read_bytes()
    assert base64.b64decode(user["client-key-data"]) == made.key("scheduler").read_bytes()
