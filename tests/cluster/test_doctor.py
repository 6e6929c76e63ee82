"""The doctor on a real API server with real pods: a cluster in order, then one provoked fault each. docs/guides/doctor.md has the list.

Those with pods of their own take seconds each for the namespace to go: all but two of them are long tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes import client as k8s

from local.stack import certificates
from tests.cluster.doctor_support import CONFIG, PORT, Deployment, deployment, states
from tests.fixtures.identities import Identities
from tests.fixtures.s3 import free_ports
from trainyard.contract import names
from trainyard.settings.clusters import PortRange
from trainyard.settings.site_pods import SitePods
from trainyard.upkeep import objects
from trainyard.upkeep.examining import pods, probe, probes
from trainyard.upkeep.examining.examination import CHECKS
from trainyard.upkeep.examining.probes import LABEL, LEFT_AFTER_S, PREFIX

__all__ = ["deployment"]
NETWORK = ("dns", "pod network", "network policy")


@pytest.mark.slow
def test_a_cluster_in_order(deployment: Deployment) -> None:
    found = deployment.examine(deployment.patient())
    assert list(found) == [check.name for check in CHECKS]
    told = states(found)
    # The tokens of the tests' identities live for hours only.
    assert (told.pop("identities"), "ends in 0." in found["identities"].saw) == ("warning", True), found["identities"]
    network = {told.pop(name) for name in NETWORK}
    assert set(told.values()) == {"ok"}, [finding for finding in found.values() if finding.state != "ok"]
    assert network == ({"not_applicable"} if deployment.profile.embedded else {"ok"}), [found[name] for name in NETWORK]


# ------------------------------------------------------------------------------------------------------------------ the API
def test_an_authority_that_did_not_sign_the_certificate(deployment: Deployment, tmp_path: Path) -> None:
    config = yaml.safe_load(Path(deployment.admin).read_text())
    for cluster in config["clusters"]:
        cluster["cluster"].pop("certificate-authority-data", None)
        cluster["cluster"]["certificate-authority"] = str(certificates.ensure(tmp_path / "other").ca)
    wrong = tmp_path / "wrong-authority"
    wrong.write_text(json.dumps(config))
    found = deployment.examine(deployment.patient(kubeconfig=str(wrong)))
    told = states(found)
    assert (told.pop("api"), told.pop("s3")) == ("failed", "ok")
    assert set(told.values()) == {"not_tried"}
    assert "certificate verify failed" in found["api"].saw


def test_an_identity_that_may_not_make_a_namespace(deployment: Deployment, identities: Identities) -> None:
    found = deployment.examine(deployment.patient(kubeconfig=identities.run))
    assert found["rights"].state == "failed"
    assert "create, list, delete namespaces" in found["rights"].saw
    assert (found["namespace"].state, found["trainer image"].state) == ("not_tried", "not_tried")
    assert found["namespace"].saw == "stands on `rights`"


def test_airflow_has_lost_its_role_in_a_tenant(deployment: Deployment) -> None:
    k8s.RbacAuthorizationV1Api(deployment.api).delete_namespaced_role_binding(names.SERVICE_ACCOUNT_RUN, deployment.namespace)
    deadline = time.monotonic() + 20 * deployment.profile.patience
    while (finding := deployment.examine(deployment.patient(), "airflow rights")["airflow rights"]).state == "ok":
        assert time.monotonic() < deadline, "the role still counts"
    assert finding.state == "failed"
    assert "create, get, list, delete networkpolicies" in finding.saw
    assert f"in {deployment.namespace}" in finding.saw
    assert f"in {names.PLATFORM_NAMESPACE}" not in finding.saw


# ------------------------------------------------------------------------------------------------------------- what sync makes
def test_a_namespace_that_is_not_synced(deployment: Deployment) -> None:
    deployment.core.patch_namespaced_resource_quota(objects.QUOTA, deployment.namespace, {"spec": {"hard": {"pods": "1"}}})
    deployment.core.delete_namespaced_secret(names.SECRET_RUN, deployment.namespace)
    finding = deployment.examine(deployment.patient(), "sync")["sync"]
    assert finding.state == "failed"
    assert f"update ResourceQuota {deployment.namespace}/{objects.QUOTA}" in finding.saw
    assert f"create Secret {deployment.namespace}/{names.SECRET_RUN}" in finding.saw
    assert finding.todo == "`trainyard sync`"


def test_a_quota_that_is_too_small_for_the_largest_gang(deployment: Deployment) -> None:
    quota = {"metadata": {"name": "company"}, "spec": {"hard": {"limits.cpu": "1"}}}
    deployment.core.create_namespaced_resource_quota(deployment.namespace, quota)
    deadline = time.monotonic() + 20 * deployment.profile.patience
    while not deployment.core.read_namespaced_resource_quota("company", deployment.namespace).status.hard:
        assert time.monotonic() < deadline, "nobody counts the quota"
        time.sleep(0.1)
    finding = deployment.examine(deployment.patient(), "quota")["quota"]
    assert finding.state == "failed"
    assert "pipeline digits-mlp" in finding.saw
    assert "quota company has 1 of limits.cpu, 2.25 are needed" in finding.saw


# -------------------------------------------------------------------------------------------------------------- pods and nodes
@pytest.mark.long
def test_an_image_that_nobody_has(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "REFUSED_S", 3.0)
    images = deployment.settings.cluster.images
    settings = deployment.on(images=images.model_copy(update={"trainer": deployment.profile.absent_image}))
    found = deployment.examine(deployment.patient(settings), "airflow image", "dns")
    assert found["trainer image"].state == "failed"
    assert deployment.profile.absent_image in found["trainer image"].saw
    assert "ErrImagePull" in found["trainer image"].saw
    assert found["trainer image"].todo.startswith("clusters/embedded.yaml: images.trainer")
    assert (found["airflow image"].state, found["dns"].state) == ("ok", "not_tried")


@pytest.mark.long
def test_an_image_that_is_not_trainyards(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "MODULES", {"trainer": ("trainer", "json"), "airflow": ("json",)})
    images = deployment.settings.cluster.images
    settings = deployment.on(images=images.model_copy(update={"trainer": deployment.profile.image}))
    finding = deployment.examine(deployment.patient(settings), "trainer image")["trainer image"]
    assert (finding.state, f"{deployment.profile.image} runs, and has no module trainer" in finding.saw) == ("failed", True), finding


@pytest.mark.long
def test_a_selector_that_no_node_has_in_the_schedulers_words(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "SCHEDULE_S", 3.0)
    settings = deployment.on(pods=SitePods(node_selector={"example.com/disk": "none"}))
    found = deployment.examine(deployment.patient(settings), "nodes", "dns")
    assert (found["nodes"].state, found["scheduling"].state, found["trainer image"].state) == ("failed", "failed", "not_tried")
    assert "nodes are available" in found["scheduling"].saw
    assert "pods.node_selector {'example.com/disk': 'none'}" in found["scheduling"].todo


@pytest.mark.long
def test_a_taint_that_pods_do_not_bear(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "SCHEDULE_S", 3.0)
    before = {node.metadata.name: node.spec.taints for node in deployment.core.list_node().items}
    taint = {"key": "example.com/reserved", "value": "theirs", "effect": "NoSchedule"}
    try:
        for name in before:
            deployment.core.patch_node(name, {"spec": {"taints": [taint]}})
        finding = deployment.examine(deployment.patient(), "scheduling")["scheduling"]
        borne = deployment.on(pods=SitePods.model_validate({"tolerations": ({"key": "example.com/reserved", "operator": "Exists"},)}))
        better = deployment.examine(deployment.patient(borne), "scheduling")["scheduling"]
    finally:
        for name, taints in before.items():
            deployment.core.patch_node(name, {"spec": {"taints": taints}})
    assert (finding.state, "untolerated taint" in finding.saw) == ("failed", True), finding
    assert finding.todo == "clusters/embedded.yaml: pods.tolerations: the nodes have example.com/reserved=theirs:NoSchedule"
    assert better.state == "ok", better


@pytest.mark.long
def test_a_scheduler_that_is_not_there(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "SCHEDULE_S", 2.0)
    settings = deployment.on(pods=SitePods(scheduler_name="nobody"))
    finding = deployment.examine(deployment.patient(settings), "scheduling")["scheduling"]
    assert (finding.state, "it waits for nobody" in finding.saw, finding.todo) == (
        "failed",
        True,
        "clusters/embedded.yaml: pods.scheduler_name",
    )


@pytest.mark.long
def test_a_priority_class_that_is_not_there(deployment: Deployment) -> None:
    settings = deployment.on(pods=SitePods(priority_class_name="urgent"))
    finding = deployment.examine(deployment.patient(settings), "scheduling")["scheduling"]
    assert (finding.state, "no PriorityClass with name urgent was found" in finding.saw) == ("failed", True), finding


@pytest.mark.long
def test_a_pull_secret_that_is_not_there(deployment: Deployment) -> None:
    found = deployment.examine(deployment.patient(deployment.on(image_pull_secrets=("no-such",))), "scheduling")
    assert (found["namespace"].state, found["scheduling"].state) == ("failed", "not_tried")
    assert f"there is no Secret no-such in namespace {names.PLATFORM_NAMESPACE}" in found["namespace"].saw


@pytest.mark.long
def test_scratch_against_the_nodes_word_hides_nothing_else(deployment: Deployment) -> None:
    reported = deployment.profile.evicts_full_volumes
    found = deployment.examine(deployment.patient(deployment.on(counts_scratch=not reported)), "nodes", "scheduling")
    assert found["nodes"].state == ("warning" if reported else "failed"), found["nodes"]
    assert f"counts_scratch: {str(reported).lower()}" in found["nodes"].todo
    assert found["scheduling"].state == "ok"


# ----------------------------------------------------------------------------------------------------------------------- S3
@pytest.mark.long
def test_an_endpoint_that_pods_do_not_reach(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    _hurry(monkeypatch)
    host = deployment.settings.cluster.s3.endpoint or ""
    settings = deployment.with_s3(endpoint=f"{host.rsplit(':', 1)[0]}:{free_ports(1)[0]}")
    found = deployment.examine(deployment.patient(settings), "s3 from pods")
    assert (found["s3"].state, found["s3 from pods"].state) == ("ok", "failed")
    assert "cannot write to" in found["s3 from pods"].saw
    assert "refused" in found["s3 from pods"].saw
    assert "s3.endpoint must be an address that pods reach" in found["s3 from pods"].todo


def test_an_endpoint_that_is_not_reached_from_here(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = deployment.with_s3(airflow_endpoint=f"http://127.0.0.1:{free_ports(1)[0]}")
    found = deployment.examine(deployment.patient(settings), "sync", "s3")
    assert (found["s3"].state, found["sync"].state) == ("failed", "not_tried")
    assert "is s3.airflow_endpoint the server's address as this machine sees it" in found["s3"].todo


def test_keys_that_the_server_does_not_take(deployment: Deployment) -> None:
    deployment.keys_file.write_text(json.dumps({"access_key": deployment.server.access_key, "secret_key": "wrong"}))
    finding = deployment.examine(deployment.patient(), "s3")["s3"]
    assert (finding.state, "refuses these credentials" in finding.saw) == ("failed", True)
    assert "TRAINYARD_S3_CREDENTIALS" in finding.todo


@pytest.mark.long
def test_pods_get_the_authorities_that_the_profile_names(deployment: Deployment, tmp_path: Path) -> None:
    settings = deployment.with_s3(ca_bundle=str(certificates.ensure(tmp_path / "own").ca))
    finding = deployment.examine(deployment.patient(settings), "s3 from pods")["s3 from pods"]
    assert finding.state == "ok", finding


@pytest.mark.long
def test_an_s3_whose_certificate_nobody_vouches_for(deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not deployment.profile.embedded:
        pytest.skip("the certificate made here is for loopback, which pods of this cluster do not share")
    _hurry(monkeypatch)
    pki = certificates.ensure(tmp_path / "s3")
    other = certificates.ensure(tmp_path / "other").ca
    with in_tls(pki, urlsplit(deployment.server.endpoint).port or 80) as port:
        told = {}
        for name, bundle in (("right", pki.ca), ("wrong", other)):
            settings = deployment.with_s3(endpoint=f"https://127.0.0.1:{port}", ca_bundle=str(bundle))
            told[name] = deployment.examine(deployment.patient(settings), "s3 from pods")["s3 from pods"]
    assert told["right"].state == "ok", told["right"]
    assert (told["wrong"].state, "certificate verify failed" in told["wrong"].saw) == ("failed", True), told["wrong"]
    assert "s3.ca_bundle names the authority that signs" in told["wrong"].todo


@contextlib.contextmanager
def in_tls(pki: certificates.Pki, port: int) -> Iterator[int]:
    """Opens a port that speaks TLS and leads to ``port``, both on loopback; yields its number."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.crt(certificates.APISERVER), pki.key(certificates.APISERVER))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            while True:
                try:
                    near, _ = listener.accept()
                except OSError:  # closed: the test is over
                    return
                # A client that does not trust us breaks off.
                far = socket.create_connection(("127.0.0.1", port), timeout=10)
                with far, contextlib.suppress(OSError), context.wrap_socket(near, server_side=True) as inside:
                    one_exchange(inside, far)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])


def one_exchange(near: ssl.SSLSocket, far: socket.socket) -> None:
    """One request there and its answer back. The client closes after each, and sends less than a record."""
    request = b""
    while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < _length(request):
        request += near.recv(65536)
    far.sendall(request)
    while data := far.recv(65536):
        near.sendall(data)


def _length(request: bytes) -> int:
    found = re.search(rb"(?i)content-length: *(\d+)", request)
    return int(found[1]) if found else 0


# ------------------------------------------------------------------------------------------------------------------- clocks
@pytest.mark.long
def test_our_clock_is_twenty_minutes_ahead(deployment: Deployment) -> None:
    patient = deployment.patient()
    patient.now = lambda: time.time() + 1200
    found = deployment.examine(patient, "clocks", "pod clock")
    assert (found["clocks"].state, found["pod clock"].state) == ("failed", "failed")
    assert "the API server is 1" in found["clocks"].saw
    assert "is this machine's own clock right?" in found["clocks"].todo
    assert "a pod on node" in found["pod clock"].saw


# ------------------------------------------------------------------------------------------------------------------ network
@pytest.mark.long
def test_names_do_not_resolve_and_policies_are_not_enforced(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    if not deployment.profile.embedded:
        pytest.skip("this cluster has DNS and enforces policies: the embedded one is the fault")
    _hurry(monkeypatch)
    settings = deployment.on(addressing="dns", ports=None, port=free_ports(1)[0])
    found = deployment.examine(deployment.patient(settings), *NETWORK)
    assert states({name: found[name] for name in NETWORK}) == dict(zip(NETWORK, ("failed", "ok", "failed"), strict=True)), found
    assert "cannot resolve server.doctor" in found["dns"].saw
    assert "NetworkPolicies are not enforced" in found["network policy"].saw


@pytest.mark.long
def test_pods_in_their_nodes_network(deployment: Deployment) -> None:
    if deployment.profile.embedded:
        pytest.skip("all its pods are in their node's network")
    update: dict[str, Any] = {"pods": SitePods(host_network=True), "port": None, "ports": PortRange(first=PORT, last=PORT + 200, block=64)}
    found = deployment.examine(deployment.patient(deployment.on(**update)), *NETWORK)
    assert states({name: found[name] for name in NETWORK}) == dict(zip(NETWORK, ("ok", "ok", "not_applicable"), strict=True)), found


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods with short patience: what is looked for here is seen at the first try."""
    text = probes.script()
    for name in ("RESOLVE_S", "CONNECT_S", "WALL_S"):
        before = f"{name} = {getattr(probe, name)}"
        assert before in text
        text = text.replace(before, f"{name} = 3.0")
    monkeypatch.setattr(probes, "script", lambda: text)


# --------------------------------------------------------------------------------------------------------------- it leaves nothing
@pytest.mark.long
def test_what_a_killed_doctor_left_goes_with_the_next(deployment: Deployment) -> None:
    left = f"{PREFIX}00000000"
    deployment.core.create_namespace({"metadata": {"name": left, "labels": {LABEL: "00000000"}}})
    mine = f"{PREFIX}mine"
    deployment.core.create_namespace({"metadata": {"name": mine}})  # no label: a person's
    said: list[str] = []
    try:
        for later, gone in ((0.0, False), (LEFT_AFTER_S + 60, True)):
            patient = deployment.patient()
            patient.now = lambda later=later: time.time() + later
            patient.remark = said.append
            with patient:
                assert patient.probes.sweep() == ([left] if gone else [])
        assert deployment.core.read_namespace(mine).metadata.deletion_timestamp is None
    finally:
        deployment.core.delete_namespace(mine)
        deadline = time.monotonic() + 60 * deployment.profile.patience
        while any(item.metadata.name in (left, mine) for item in deployment.core.list_namespace().items):
            assert time.monotonic() < deadline, "the namespaces stay"
            time.sleep(0.2)


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)],
)
def test_interrupted_in_the_middle(deployment: Deployment, tmp_path: Path, number: signal.Signals, code: int) -> None:
    config = tmp_path / "config"
    shutil.copytree(CONFIG, config)
    document = deployment.settings.cluster.model_dump(mode="json", exclude_none=True)
    (config / "clusters" / "site.yaml").write_text(yaml.safe_dump(document))
    environment = {**os.environ, "TRAINYARD_CONFIG": str(config), "TRAINYARD_STATE": str(tmp_path / "none")}
    command = ["doctor", "--cluster", "site", "--kubeconfig", deployment.admin, "--json"]
    doctor = subprocess.Popen(
        [sys.executable, "-c", "from trainyard.cli.main import app; app()", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=_hears_int,
    )  # fmt: skip
    try:
        assert doctor.stdout is not None
        for line in doctor.stdout:
            if json.loads(line)["check"] == "scheduling":
                break
        assert [item for item in deployment.left() if item.startswith("namespace")]
        doctor.send_signal(number)
        out, err = doctor.communicate(timeout=120)
    finally:
        doctor.kill()
        doctor.communicate()
    assert doctor.returncode == code, err
    assert deployment.left() == []
    assert "left behind" not in err
    assert "network policy" not in out


def _hears_int() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
