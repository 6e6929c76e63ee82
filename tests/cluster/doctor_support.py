"""One deployment for the doctor: a tenant with a pipeline, synced, on the cluster under test; and the checks that one check stands on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import POD_HOST
from tests.cluster.relay import relayed
from tests.cluster.support import Profile
from tests.fixtures.identities import Identities
from tests.fixtures.s3 import S3Server
from trainyard.contract import names
from trainyard.settings import Settings, Tenant, load
from trainyard.upkeep.examining import pods
from trainyard.upkeep.examining.examination import CHECKS, Check, examine
from trainyard.upkeep.examining.finding import Finding
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.examining.probes import PREFIX
from trainyard.upkeep.sync import sync_cluster

CONFIG = Path(__file__).resolve().parents[2] / "config"
PORT = 2222


@dataclasses.dataclass
class Deployment:
    """What the doctor is sent to, and who sends it."""

    settings: Settings
    profile: Profile
    api: k8s.ApiClient
    admin: str
    """The administrator's kubeconfig."""
    server: S3Server
    keys_file: Path

    @property
    def core(self) -> k8s.CoreV1Api:
        return k8s.CoreV1Api(self.api)

    @property
    def tenant(self) -> str:
        return next(iter(self.settings.tenants))

    @property
    def namespace(self) -> str:
        return names.namespace(self.tenant)

    def on(self, **profile: Any) -> Settings:
        """The settings with other values in the cluster's profile."""
        return dataclasses.replace(self.settings, cluster=self.settings.cluster.model_copy(update=profile))

    def with_s3(self, **section: Any) -> Settings:
        """The settings with other values in the profile's section on S3."""
        return self.on(s3=self.settings.cluster.s3.model_copy(update=section))

    def patient(self, settings: Settings | None = None, kubeconfig: str | None = None) -> Patient:
        """Examined by the administrator, unless another is named."""
        return Patient(settings or self.settings, kubeconfig=kubeconfig or self.admin)

    def examine(self, patient: Patient, *wanted: str) -> dict[str, Finding]:
        """The findings by check, of all or of these and what they stand on. Nothing of it is left, or the test fails."""
        with patient:
            found = {finding.check: finding for finding in examine(patient, needed_for(*wanted) if wanted else CHECKS)}
        assert self.left() == []
        return found

    def left(self) -> list[str]:
        """What a doctor has not taken away."""
        namespaces = [
            f"namespace {item.metadata.name}" for item in self.core.list_namespace().items if item.metadata.name.startswith(PREFIX)
        ]
        client = self.server.client()
        buckets = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
        mine = [f"bucket {name}" for name in buckets if name.startswith(f"{self.settings.cluster.s3.bucket_prefix}-doctor")]
        return namespaces + mine


def needed_for(*wanted: str) -> list[Check]:
    """The checks of these names and all that they stand on, in their order."""
    by_name = {check.name: check for check in CHECKS}
    keep, todo = set(), list(wanted)
    while todo:
        name = todo.pop()
        if name not in keep:
            keep.add(name)
            todo += by_name[name].needs
    return [check for check in CHECKS if check.name in keep]


def states(found: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.state for name, finding in found.items()}


@pytest.fixture
def deployment(
    cluster: tuple[str, Profile],
    cluster_api: k8s.ApiClient,
    identities: Identities,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Deployment]:
    """A tenant of a name of its own, synced. Its namespace goes with the test."""
    admin, profile = cluster
    for name in ("TRAINYARD_KUBECONFIG", "TRAINYARD_SYNC_KUBECONFIG", "TRAINYARD_S3_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    keys_file = tmp_path / "admin.json"
    keys_file.write_text(json.dumps({"access_key": s3_server.access_key, "secret_key": s3_server.secret_key}))
    monkeypatch.setenv("TRAINYARD_S3_CREDENTIALS", str(keys_file))
    with contextlib.ExitStack() as stack:
        endpoint, host = s3_server.endpoint, os.environ.get(POD_HOST)
        if host:
            endpoint = f"http://{host}:{stack.enter_context(relayed(host, urlsplit(endpoint).port or 80))}"
        elif not profile.embedded:
            pytest.skip(f"{POD_HOST} does not say by which address of this machine pods reach the S3 server")
        samples = load(CONFIG, environ={})
        update: dict[str, Any] = {
            "kubeconfig": identities.run,
            "sync_kubeconfig": identities.sync,
            "counts_scratch": profile.evicts_full_volumes,
            "s3": samples.cluster.s3.model_copy(
                update={"bucket_prefix": f"p{secrets.token_hex(4)}", "endpoint": endpoint, "airflow_endpoint": s3_server.endpoint}
            ),
        }
        if not profile.embedded:
            image = samples.cluster.images.model_copy(update={"trainer": profile.image, "airflow": profile.image})
            update |= {"addressing": "dns", "ports": None, "port": PORT, "images": image}
            # Any image with a python3 will do for what is tried here: that it is Trainyard's is one test's matter.
            monkeypatch.setattr(pods, "MODULES", {"trainer": ("json",), "airflow": ("json",)})
        tenant = Tenant.model_validate({**samples.tenants["vision"].model_dump(), "name": f"t{secrets.token_hex(4)}"})
        pipeline = samples.pipelines["digits-mlp"].model_copy(update={"tenant": tenant.name})
        settings = dataclasses.replace(
            samples,
            tenants={tenant.name: tenant},
            pipelines={pipeline.name: pipeline},
            cluster=samples.cluster.model_copy(update=update),
        )
        sync_cluster(settings)
        yield Deployment(settings, profile, cluster_api, admin, s3_server, keys_file)
        k8s.CoreV1Api(cluster_api).delete_namespace(names.namespace(tenant.name), grace_period_seconds=0)
