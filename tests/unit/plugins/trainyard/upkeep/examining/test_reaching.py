"""An API server that is not there, is another one, does not know us, or is too old: each in its own words, with the way out."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from local.stack import certificates
from tests.unit.plugins.trainyard.upkeep.examining.conftest import ApiServer, on
from trainyard.settings import Settings
from trainyard.upkeep.examining import reaching
from trainyard.upkeep.examining.finding import Finding
from trainyard.upkeep.examining.patient import Patient


def one(findings: Any) -> Finding:
    (finding,) = findings
    return finding


def test_who_we_are_is_told(api_server: ApiServer, patient: Patient) -> None:
    api_server.knows("system:serviceaccount:trainyard-system:trainyard-run")
    finding = one(reaching.api(patient))
    assert (finding.state, finding.todo) == ("ok", "")
    assert finding.saw.endswith("knows us as system:serviceaccount:trainyard-system:trainyard-run")


def test_nobody_listens(api_server: ApiServer, settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        kubeconfig = api_server.kubeconfig(port=taken.getsockname()[1])
        finding = one(reaching.api(Patient(on(settings, kubeconfig=kubeconfig))))
    assert finding.state == "failed"
    assert finding.saw.endswith("is not reached: [Errno 111] Connection refused")
    assert finding.todo.startswith(f"kubeconfig {kubeconfig}: is `server` right, does the cluster run")


def test_another_authority_signed_its_certificate(api_server: ApiServer, settings: Settings, tmp_path: Path) -> None:
    other = certificates.ensure(tmp_path / "other")
    finding = one(reaching.api(Patient(on(settings, kubeconfig=api_server.kubeconfig(authority=other.ca)))))
    assert finding.state == "failed"
    assert "certificate verify failed" in finding.saw
    assert "`certificate-authority-data` is not the authority that signed" in finding.todo
    assert not api_server.asked


def test_its_certificate_has_another_name(api_server: ApiServer, settings: Settings) -> None:
    # All of 127.0.0.0/8 is loopback, but only the first address is in the certificate: a forwarder listens on another.
    with socket.socket() as relay:
        relay.bind(("127.0.0.2", 0))
        relay.listen()
        relay.settimeout(20)

        def forward() -> None:
            near, _ = relay.accept()
            far = socket.create_connection(("127.0.0.1", api_server.port))
            with near, far:
                far.sendall(near.recv(65536))
                near.sendall(far.recv(65536))
                near.recv(65536)

        thread = threading.Thread(target=forward, daemon=True)
        thread.start()
        kubeconfig = api_server.kubeconfig(host="127.0.0.2", port=relay.getsockname()[1])
        finding = one(reaching.api(Patient(on(settings, kubeconfig=kubeconfig))))
        thread.join(timeout=10)
    assert finding.state == "failed"
    assert "IP address mismatch" in finding.saw
    assert "tls-server-name" in finding.todo


def test_what_answers_speaks_no_tls(api_server: ApiServer, settings: Settings) -> None:
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        plain.listen()
        plain.settimeout(20)

        def answer() -> None:
            near, _ = plain.accept()
            with near:
                near.recv(65536)
                near.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        kubeconfig = api_server.kubeconfig(port=plain.getsockname()[1])
        finding = one(reaching.api(Patient(on(settings, kubeconfig=kubeconfig))))
        thread.join(timeout=10)
    assert finding.state == "failed"
    assert finding.saw.startswith("no TLS connection to https://127.0.0.1:")


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy"])
def test_a_proxy_that_stands_between_is_named(
    api_server: ApiServer, settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in reaching.PROXIES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    finding = one(reaching.api(Patient(settings)))
    assert finding.state == "failed"
    assert f"({name}=http://127.0.0.1:1 stands between: NO_PROXY" in finding.todo


def test_it_does_not_know_our_token(api_server: ApiServer, patient: Patient) -> None:
    refusal = {"kind": "Status", "message": "Unauthorized", "code": 401}
    api_server.answers["POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"] = (401, refusal)
    finding = one(reaching.api(patient))
    assert (finding.state, "does not know us (401 Unauthorized)" in finding.saw) == ("failed", True)
    assert "make a new kubeconfig" in finding.todo
    assert "a-token" not in finding.saw + finding.todo


def test_a_kubeconfig_that_is_not_there(settings: Settings, tmp_path: Path) -> None:
    finding = one(reaching.api(Patient(on(settings, kubeconfig=str(tmp_path / "none")))))
    assert finding.state == "failed"
    assert f"{tmp_path / 'none'}: there is no such file" in finding.saw
    assert finding.todo.startswith("clusters/embedded.yaml: `kubeconfig`")


@pytest.mark.parametrize(
    ("minor", "state", "words"),
    [
        ("25", "failed", "podFailurePolicy of a Job (from 1.26 on"),
        ("28", "failed", "backoffLimitPerIndex of a Job (from 1.29 on: a lost worker is replaced alone)"),
        ("29+", "failed", "ValidatingAdmissionPolicy"),
        ("30", "ok", "can switch it off"),
        ("34+", "ok", "Kubernetes v1.34+.0"),
    ],
)
def test_too_old_for_a_gang(api_server: ApiServer, patient: Patient, minor: str, state: str, words: str) -> None:
    api_server.version(minor)
    finding = one(reaching.version(patient))
    assert (finding.state, words in finding.saw) == (state, True), finding
    if state == "failed":
        assert finding.todo == "use a cluster of 1.30 or newer"
        assert ("podFailurePolicy" in finding.saw) == (minor == "25")


def test_fields_that_the_server_drops_are_named_with_what_they_are_for(api_server: ApiServer, patient: Patient) -> None:
    def without(*names: str) -> Any:
        return lambda body: (201, {**body, "spec": {key: value for key, value in body["spec"].items() if key not in names}})

    path = f"/apis/batch/v1/namespaces/{patient.probes.name}/jobs"
    api_server.answers["POST", path] = without()
    assert one(reaching.jobs(patient)).state == "ok"
    api_server.answers["POST", path] = without("maxFailedIndexes", "podReplacementPolicy")
    finding = one(reaching.jobs(patient))
    assert finding.state == "failed"
    assert "maxFailedIndexes (one replica that fails for good ends its Job" in finding.saw
    assert "podReplacementPolicy" in finding.saw
    assert "backoffLimitPerIndex" not in finding.saw


def with_token(server: ApiServer, ends_in_days: float, name: str) -> str:
    """A kubeconfig whose token is a service account's, as far as its end can be read from it."""
    payload = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time() + ends_in_days * 86_400)}).encode()).decode().rstrip("=")
    path = server.folder / name
    path.write_text(Path(server.kubeconfig()).read_text().replace("a-token", f"e30.{payload}.c2ln"))
    return str(path)


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [(400, "ok", "knows us as admin"), (3, "warning", "ends in 3.0 days"), (-2, "failed", "ended 2.0 days ago")],
)
def test_a_token_that_ends_soon(api_server: ApiServer, settings: Settings, days: float, state: str, words: str) -> None:
    api_server.knows()
    finding = one(reaching.api(Patient(on(settings, kubeconfig=with_token(api_server, days, "own")))))
    assert (finding.state, words in finding.saw) == (state, True), finding
    assert bool(api_server.asked) == (days > 0)
    if state != "ok":
        assert "deploy/kubeconfig" in finding.todo


def test_the_kubeconfigs_of_airflow_and_of_sync_are_tried_too(api_server: ApiServer, settings: Settings) -> None:
    api_server.knows()
    ended, good = with_token(api_server, -1, "sync"), with_token(api_server, 300, "run")
    admin = api_server.kubeconfig()
    both = Patient(on(settings, kubeconfig=good, sync_kubeconfig=ended), kubeconfig=admin)
    sync, airflow = reaching.identities(both)
    assert (sync.state, sync.saw.startswith(f"sync: the token of kubeconfig {ended} ended")) == ("failed", True)
    assert (airflow.state, airflow.saw.startswith("Airflow: https://")) == ("ok", True)
    assert one(reaching.identities(Patient(on(settings, kubeconfig=admin, sync_kubeconfig=admin)))).state == "not_applicable"
    shared = Patient(on(settings, kubeconfig=good, sync_kubeconfig=good), kubeconfig=admin)
    assert one(reaching.identities(shared)).saw.startswith("Airflow: ")
