"""S3 from here, on a real server; what a pod says of it, in words; and the keys in Secrets, tried for what they may and must not."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from tests.unit.plugins.trainyard.upkeep.examining.conftest import ApiServer, on
from trainyard.contract import names
from trainyard.settings import Settings
from trainyard.store import Credentials, Store
from trainyard.store.identities import Buckets, IdentityServer, export_policy, run_policy, upkeep_policy
from trainyard.upkeep.examining import keys, storage
from trainyard.upkeep.examining.finding import Finding
from trainyard.upkeep.examining.patient import Patient


@pytest.fixture
def here(settings: Settings, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings on the test's S3 server, with the administrator's keys; one tenant, and a prefix of its own."""
    file = tmp_path / "admin.json"
    file.write_text(json.dumps({"access_key": s3_server.access_key, "secret_key": s3_server.secret_key}))
    monkeypatch.setenv("TRAINYARD_S3_CREDENTIALS", str(file))
    prefix = f"d{secrets.token_hex(4)}"
    s3 = settings.cluster.s3.model_copy(update={"endpoint": s3_server.endpoint, "bucket_prefix": prefix})
    return dataclasses.replace(on(settings, s3=s3), tenants={"vision": settings.tenants["vision"]})


def changed(settings: Settings, **section: Any) -> Settings:
    return on(settings, s3=settings.cluster.s3.model_copy(update=section))


def everything(server: S3Server) -> set[str]:
    """Every bucket and object there is."""
    client = server.client()
    names_ = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    objects = [f"{name}/{item['Key']}" for name in names_ for item in client.list_objects_v2(Bucket=name).get("Contents", ())]
    return {*names_, *objects}


def examined(settings: Settings, server: S3Server) -> Finding:
    """The check's only finding; nothing of it is left, and nothing is told to be left."""
    before, left = everything(server), []
    with Patient(settings, remark=left.append) as patient:
        (finding,) = storage.from_here(patient)
    assert (everything(server), left) == (before, [])
    return finding


class TestFromHere:
    def test_managed(self, here: Settings, s3_server: S3Server) -> None:
        finding = examined(here, s3_server)
        assert (finding.state, "managed: a bucket was made, used and removed" in finding.saw) == ("ok", True)

    def test_external(self, here: Settings, s3_server: S3Server) -> None:
        external = changed(here, mode="external")
        bucket = names.data_bucket(external.cluster.s3.bucket_prefix, "vision")
        finding = examined(external, s3_server)
        assert (finding.state, "make the bucket, or correct s3.bucket_prefix" in finding.todo) == ("failed", True), finding
        s3_server.client().create_bucket(Bucket=bucket)
        finding = examined(external, s3_server)
        assert (finding.state, f"external: in bucket {bucket}" in finding.saw) == ("ok", True)
        assert examined(dataclasses.replace(external, tenants={}), s3_server).state == "not_applicable"

    @pytest.mark.parametrize("mode", ["managed", "external"])
    def test_keys_that_the_server_does_not_know(self, here: Settings, s3_server: S3Server, tmp_path: Path, mode: str) -> None:
        (tmp_path / "admin.json").write_text(json.dumps({"access_key": "nobody", "secret_key": "wrong"}))
        finding = examined(changed(here, mode=mode), s3_server)
        assert (finding.state, "TRAINYARD_S3_CREDENTIALS" in finding.todo) == ("failed", True), finding

    def test_no_keys_at_all(self, here: Settings, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TRAINYARD_S3_CREDENTIALS")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name, raising=False)
        finding = examined(here, s3_server)
        assert (finding.state, "no S3 identity" in finding.saw) == ("failed", True)

    @pytest.mark.parametrize("ignored", ["if_none_match", "if_match"])
    def test_a_server_that_ignores_conditions(
        self, here: Settings, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, ignored: str
    ) -> None:
        put = Store.put

        def careless(self: Store, key: str, body: bytes, **conditions: Any) -> str:
            conditions.pop(ignored, None)
            return put(self, key, body, **conditions)

        monkeypatch.setattr(Store, "put", careless)
        finding = examined(here, s3_server)
        header = {"if_none_match": "If-None-Match", "if_match": "If-Match"}[ignored]
        assert (finding.state, f"({header}" in finding.saw) == ("failed", True), finding
        assert "two runs could both believe that they were first" in finding.saw

    def test_a_bucket_that_is_gone_already_is_not_told_to_be_left(self, here: Settings, s3_server: S3Server) -> None:
        left: list[str] = []
        with Patient(here, remark=left.append) as patient:
            made = storage._store(patient, storage.credentials(here))
            assert made is not None
            s3_server.client().delete_bucket(Bucket=made.bucket)
        assert left == []


PUT = {"status": 200, "date": None, "body": ""}
GOT = {**PUT, "same": True}


@pytest.mark.parametrize(
    ("said", "state", "saw", "todo"),
    [
        ({"put": PUT, "get": GOT}, "ok", "writes and reads at http://s3", ""),
        ({}, "failed", "ended before it could write to", "does its python3 work?"),
        ({"put": {"error": "gaierror: no such name"}}, "failed", "cannot write to http://s3: gaierror", "an address that pods reach"),
        ({"put": {"error": "SSLError: x", "certificate": True}}, "failed", "cannot write to", "s3.ca_bundle"),
        ({"put": {"status": 403, "body": "<Code>SignatureDoesNotMatch</Code>\n"}}, "failed", "403 <Code>Signature", "changes requests"),
        ({"put": PUT, "get": {"error": "timed out"}}, "failed", "cannot read from http://s3: timed out", "an address that pods reach"),
        ({"put": PUT, "get": {**GOT, "same": False}}, "failed", "read other bytes", "the same server"),
    ],
)  # fmt: skip
def test_what_a_pod_says_becomes_one_finding(patient: Patient, said: Any, state: str, saw: str, todo: str) -> None:
    finding = storage._verdict(patient, "http://s3", "a-node", said)
    assert (finding.state, saw in finding.saw, todo in finding.todo) == (state, True, True), finding


@pytest.mark.parametrize("endpoint", ["http://localhost:8333", "http://127.0.0.1:8333", "http://[::1]:8333"])
def test_loopback_is_no_address_for_a_pod(settings: Settings, endpoint: str) -> None:
    s3 = settings.cluster.s3.model_copy(update={"endpoint": endpoint})
    patient = Patient(on(settings, addressing="dns", ports=None, port=2222, s3=s3))
    patient.bucket = Store("b", endpoint, "us-east-1", "a", "b")
    (finding,) = storage.from_pods(patient)
    assert (finding.state, "each pod's own loopback" in finding.saw) == ("failed", True)
    assert patient.undo == []


class TestKeys:
    """Secrets with keys of real identities, whose policies are right or wrong."""

    @pytest.fixture
    def identity_server(self, here: Settings, s3_server: S3Server) -> IdentityServer:
        made = IdentityServer(Credentials(s3_server.endpoint, s3_server.access_key, s3_server.secret_key), s3_server.region)
        buckets = Buckets.of(here.cluster.s3.bucket_prefix, "vision")
        made.make_bucket(buckets.data)
        made.make_bucket(buckets.models)
        return made

    def give(
        self, api: ApiServer, server: IdentityServer, here: Settings, name: str, policy: Any, namespace: str = "tenant-vision"
    ) -> None:
        """An identity with this policy, and its key in the Secret ``name``."""
        prefix = here.cluster.s3.bucket_prefix
        user = f"{prefix}-{name}"
        server.make_user(user)
        server.set_policy(user, policy)
        key = server.make_key(user, names.data_bucket(prefix, "vision"))
        values = {"access_key": str(key.access_key), "secret_key": str(key.secret_key)}
        data = {name_: base64.b64encode(value.encode()).decode() for name_, value in values.items()}
        api.answers["GET", f"/api/v1/namespaces/{namespace}/secrets/{name}"] = (200, {"metadata": {"name": name}, "data": data})

    def test_those_that_sync_makes(
        self, api_server: ApiServer, here: Settings, identity_server: IdentityServer, s3_server: S3Server
    ) -> None:
        buckets = Buckets.of(here.cluster.s3.bucket_prefix, "vision")
        self.give(api_server, identity_server, here, names.SECRET_RUN, run_policy(buckets))
        self.give(api_server, identity_server, here, names.SECRET_EXPORT, export_policy(buckets))
        self.give(api_server, identity_server, here, names.SECRET_UPKEEP, upkeep_policy([buckets.data]), names.PLATFORM_NAMESPACE)
        before = everything(s3_server)
        with Patient(here) as patient:
            (finding,) = keys.secrets(patient)
        assert (finding.state, finding.saw.startswith("3 Secrets")) == ("ok", True), finding
        assert everything(s3_server) == before

    def test_those_that_an_administrator_made_wrongly(
        self, api_server: ApiServer, here: Settings, identity_server: IdentityServer, s3_server: S3Server
    ) -> None:
        buckets = Buckets.of(here.cluster.s3.bucket_prefix, "vision")
        self.give(api_server, identity_server, here, names.SECRET_RUN, export_policy(buckets))  # the two are exchanged
        self.give(api_server, identity_server, here, names.SECRET_EXPORT, run_policy(buckets))
        empty = {"metadata": {"name": names.SECRET_UPKEEP}, "data": {"key": ""}}
        api_server.answers["GET", f"/api/v1/namespaces/{names.PLATFORM_NAMESPACE}/secrets/{names.SECRET_UPKEEP}"] = (200, empty)
        before = everything(s3_server)
        with Patient(changed(here, mode="external")) as patient:
            (finding,) = keys.secrets(patient)
        assert everything(s3_server) == before
        assert finding.state == "failed"
        assert f"tenant-vision/s3-run may write into {buckets.models}: a step that runs users' code could replace a champion" in finding.saw
        assert f"tenant-vision/s3-export cannot write into {buckets.models}: " in finding.saw
        assert "trainyard-platform/s3-upkeep has no keys access_key and secret_key" in finding.saw
        assert "give the identity what docs/guides/configuration.md lists" in finding.todo

    def test_before_a_sync(self, here: Settings) -> None:
        (finding,) = keys.secrets(Patient(here))
        assert finding.state == "not_applicable"
