"""A tenant from its file, on the cluster under test: the settings that ``sync`` is given, and how its work is looked at."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client as k8s

from tests.cluster.support import Profile
from tests.fixtures.identities import Identities
from tests.fixtures.s3 import S3Server
from trainyard.contract import names
from trainyard.settings import Settings, Tenant, load
from trainyard.upkeep.changes import Change

CONFIG = Path(__file__).resolve().parents[2] / "config"


@pytest.fixture
def settings(
    cluster: tuple[str, Profile],
    cluster_api: k8s.ApiClient,
    identities: Identities,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Settings]:
    """One tenant of a name of its own, on the cluster under test and the session's S3 server, for the identity *sync*.

    Its namespace goes with the test.
    """
    keys_file = tmp_path / "admin.json"
    keys_file.write_text(
        json.dumps({"endpoint": s3_server.endpoint, "access_key": s3_server.access_key, "secret_key": s3_server.secret_key})
    )
    monkeypatch.setenv("TRAINYARD_S3_CREDENTIALS", str(keys_file))
    monkeypatch.delenv("TRAINYARD_KUBECONFIG", raising=False)
    monkeypatch.delenv("TRAINYARD_SYNC_KUBECONFIG", raising=False)
    samples = load(CONFIG, environ={"TRAINYARD_S3_ENDPOINT": s3_server.endpoint})
    name = f"t{secrets.token_hex(4)}"
    s3 = samples.cluster.s3.model_copy(update={"bucket_prefix": f"p{secrets.token_hex(4)}"})
    update = {"sync_kubeconfig": identities.sync, "s3": s3, "counts_scratch": cluster[1].evicts_full_volumes}
    profile = samples.cluster.model_copy(update=update)
    yield dataclasses.replace(samples, tenants={name: tenant_of(samples, name)}, pipelines={}, cluster=profile)
    core = k8s.CoreV1Api(cluster_api)
    if any(found.metadata.name == names.namespace(name) for found in core.list_namespace().items):
        core.delete_namespace(names.namespace(name), grace_period_seconds=0)


def tenant_of(settings: Settings, name: str, **fields: object) -> Tenant:
    active = next(tenant for tenant in settings.tenants.values() if tenant.state == "active")
    return Tenant.model_validate({**active.model_dump(), "name": name, **fields})


def only_tenant(settings: Settings) -> Tenant:
    (tenant,) = settings.tenants.values()
    return tenant


def told(changes: list[Change]) -> set[tuple[str, str]]:
    return {(change.action, change.what) for change in changes}


def secret(core: k8s.CoreV1Api, name: str, namespace: str) -> dict[str, str]:
    data = core.read_namespaced_secret(name, namespace).data
    return {key: base64.b64decode(value).decode() for key, value in data.items()}
