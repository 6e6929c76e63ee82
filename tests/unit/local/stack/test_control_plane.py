"""Identities, keys and flags of the control plane, without starting it (tests/e2e/test_stack_*.py do)."""

from __future__ import annotations

import datetime
import json
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from local.stack import certificates, control_plane, ports
from local.stack.control_plane import IDENTITIES, ControlPlane
from local.stack.state import State


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    return control_plane.prepare(State.at(tmp_path), ports.plan(20000), Path("/kube"))


def test_every_identity_has_a_random_token_of_its_own(plane: ControlPlane) -> None:
    assert set(plane.tokens) == set(IDENTITIES)
    assert len(set(plane.tokens.values())) == len(IDENTITIES)
    assert all(len(token) >= 32 for token in plane.tokens.values())


def test_secrets_are_the_users_alone(plane: ControlPlane) -> None:
    files = [plane.state.kube / "tokens.csv", *plane.state.kube.glob("*.kubeconfig"), *plane.pki.folder.glob("*.key")]
    assert len(files) == 1 + len(IDENTITIES) + 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_restart_keeps_tokens_and_keys(plane: ControlPlane, tmp_path: Path) -> None:
    authority = plane.pki.ca.read_bytes()
    again = control_plane.prepare(State.at(tmp_path), ports.plan(20000), Path("/kube"))
    assert again.tokens == plane.tokens
    assert again.pki.ca.read_bytes() == authority


def test_a_kubeconfig_names_server_authority_and_token(plane: ControlPlane) -> None:
    value = json.loads(plane.kubeconfig("airflow").read_text())
    assert value["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:20002"
    assert value["users"][0]["user"]["token"] == plane.tokens["airflow"]


def test_only_the_administrator_passes_over_rbac(plane: ControlPlane) -> None:
    rows = [line.split(",") for line in (plane.state.kube / "tokens.csv").read_text().splitlines()]
    assert [row[2] for row in rows if "system:masters" in row] == ["admin"]
    assert ["system:node:local", "kubelet", "system:nodes"] in [row[1:] for row in rows]


def test_flags_that_matter(plane: ControlPlane) -> None:
    flags = {component.name: list(component.program) for component in plane.components({})}
    assert "--anonymous-auth=false" in flags["kube-apiserver"]
    assert "--authorization-mode=Node,RBAC" in flags["kube-apiserver"]
    assert "--enable-admission-plugins=NodeRestriction,ResourceQuota,LimitRanger,PodSecurity" in flags["kube-apiserver"]
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert "--bind-address=127.0.0.1" in flags[name]
    assert not any("http://" in word or "tcp" in word for word in flags["etcd"])
    assert "--unsafe-no-fsync" not in flags["etcd"]
    assert "--unsafe-no-fsync" in list(plane.components({}, fsync=False)[0].program)


def test_etcds_sockets_lie_in_a_folder_of_the_user_alone(plane: ControlPlane) -> None:
    etcd = plane.components({})[0]
    assert stat.S_IMODE(etcd.cwd.stat().st_mode) == 0o700


def test_nothing_answers(plane: ControlPlane) -> None:
    assert not plane.ready()
    assert not plane.node_ready()


def test_the_servers_certificate_is_for_loopback_and_signed_by_the_authority(plane: ControlPlane) -> None:
    authority = x509.load_pem_x509_certificate(plane.pki.ca.read_bytes())
    server = x509.load_pem_x509_certificate(plane.pki.crt(certificates.APISERVER).read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    ssl.create_default_context(cafile=str(plane.pki.ca))


@pytest.mark.parametrize("name", ["ca.crt", "apiserver.key", "service-account.key"])
def test_a_half_made_set_is_made_again(tmp_path: Path, name: str) -> None:
    first = certificates.ensure(tmp_path)
    authority, account = first.ca.read_bytes(), first.service_account_key.read_bytes()
    (tmp_path / name).unlink()
    again = certificates.ensure(tmp_path)
    assert again.ca.read_bytes() != authority
    if name != "service-account.key":
        assert again.service_account_key.read_bytes() == account  # tokens that pods hold stay good


def test_a_set_that_runs_out_soon_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LIFE", datetime.timedelta(days=20))
    authority = certificates.ensure(tmp_path).ca.read_bytes()
    monkeypatch.undo()
    assert certificates.ensure(tmp_path).ca.read_bytes() != authority


def test_rights_are_those_of_deploy_rbac_each_at_its_own_address(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def request(self: ControlPlane, method: str, path: str, body: object, **_: object) -> dict[str, object]:
        asked.append(f"{method} {path.partition('?')[0]}")
        return {}

    monkeypatch.setattr(ControlPlane, "request", request)
    plane.grant_rights()
    assert asked[0] == "PATCH /api/v1/namespaces/trainyard-system"
    assert "PATCH /api/v1/namespaces/trainyard-system/serviceaccounts/trainyard-run" in asked
    assert "PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/trainyard-run-ports" in asked
    assert "PATCH /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/trainyard-sync" in asked


def test_airflow_and_sync_are_the_accounts_of_deploy_rbac_by_name() -> None:
    for identity, account in (("airflow", "trainyard-run"), ("sync", "trainyard-sync")):
        assert IDENTITIES[identity][0] == f"system:serviceaccount:trainyard-system:{account}"


def test_one_that_is_reached_from_elsewhere_listens_there_and_hands_out_what_names_it(tmp_path: Path) -> None:
    (tmp_path / "access").mkdir()
    prepared = [
        control_plane.prepare(State.at(tmp_path / "state"), ports.plan(20000), Path("/kube"), name, tmp_path / "access" if name else None)
        for name in (None, "elsewhere")
    ]
    alone, named = (next(c.program for c in plane.components({}) if c.name == "kube-apiserver") for plane in prepared)
    assert "--bind-address=127.0.0.1" in alone
    assert "--bind-address=0.0.0.0" in named
    assert {path.name for path in (tmp_path / "access").iterdir()} == {"airflow.kubeconfig", "sync.kubeconfig"}
    for identity in ("airflow", "sync"):
        path = tmp_path / "access" / f"{identity}.kubeconfig"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        config = json.loads(path.read_text())
        assert config["clusters"][0]["cluster"]["server"] == f"https://elsewhere:{ports.plan(20000)['kube_apiserver']}"
        assert config["users"][0]["user"]["token"] == prepared[1].tokens[identity]
        own = json.loads(prepared[1].kubeconfig(identity).read_text())
        assert own["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    # A certificate that was made before the name was asked for is not for it, and the set is made anew, once.
    certificate = x509.load_pem_x509_certificate(prepared[1].pki.crt("apiserver").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert {"elsewhere", "localhost"} <= set(names)
    authority = prepared[1].pki.ca.read_bytes()
    control_plane.prepare(State.at(tmp_path / "state"), ports.plan(20000), Path("/kube"), "elsewhere", tmp_path / "access")
    assert prepared[1].pki.ca.read_bytes() == authority
