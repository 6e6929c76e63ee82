"""What the gang's tests stand on: a tenant's namespace of their own, its bucket, and gangs of replicas that do as they are told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.cluster.relay import relayed
from tests.cluster.support import Profile
from tests.fixtures.identities import wait_for_right
from tests.fixtures.platform import my_share
from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainyard.contract import keys, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube.gang_state import PodView, pods
from trainyard.operators.gang_cluster import GangCluster, Timing
from trainyard.operators.gang_run import GangOutcome, GangRun
from trainyard.operators.run_access import spec_digest
from trainyard.settings import load
from trainyard.settings.clusters import S3, ClusterProfile, Images, PortRange
from trainyard.store import Store
from trainyard.upkeep import objects
from trainyard.upkeep.applying import Applier
from trainyard.upkeep.network import api_server
from trainyard.upkeep.policies import policies

CONFIG = Path(__file__).parents[2] / "config"

FAKE = (Path(__file__).parent / "fake_replica.py").read_text()
SLOT = {"cpu": "100m", "memory": "128Mi", "scratch": "16Mi"}
QUICK = Timing(poll=0.3, start_poll=0.1, room=60, result_after_chief=3, result_after_peer=3, peers_end=4, drain=5)


GENERATIONS = range(1, 4)
"""A test's gangs have links for so many."""

Behaviour = dict[str, dict[str, Any]]


def behave(**roles: dict[str, Any]) -> Behaviour:
    """Behaviours by role; a role that is not named just waits for the end."""
    return {role: roles.get(role, {}) for role in names.ROLES}


@dataclass
class Log:
    """The task's log of one try."""

    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)


@dataclass
class GangTenant:
    """One tenant with a namespace, a quota and a bucket."""

    api: k8s.ApiClient
    """The administrator's: to set up, and to look on."""
    run_api: k8s.ApiClient
    """Airflow's identity: what the code under test may."""
    profile: ClusterProfile
    server: S3Server
    name: str
    bucket: str
    pods_endpoint: str
    """The S3 server as pods reach it."""

    @property
    def namespace(self) -> str:
        return names.namespace(self.name)

    @property
    def core(self) -> k8s.CoreV1Api:
        return k8s.CoreV1Api(self.api)

    @property
    def batch(self) -> k8s.BatchV1Api:
        return k8s.BatchV1Api(self.api)

    @property
    def store(self) -> Store:
        return Store(self.bucket, self.server.endpoint, "us-east-1", self.server.access_key, self.server.secret_key)

    def spec(self, run: str | None = None, **changes: Any) -> RunSpec:
        """A run of this tenant: 2 workers and 2 PS of one small slot each."""
        run = run or f"digits-{secrets.token_hex(5)}"
        base = {
            "run": run, "tenant": self.name, "slot": SLOT, "storage__endpoint": self.server.endpoint, "storage__bucket": self.bucket,
            "gang__workers": 2, "gang__parameter_servers": 2, "training__start_deadline_s": 60,
        }  # fmt: skip
        return RunSpec.model_validate(run_spec_document(**(base | changes)))

    def command(self, run: str, behaviour: Behaviour) -> dict[str, list[str]]:
        """What the replicas run: the fake, its behaviour and its links."""
        results = {number: keys.generation_result(run, number) for number in GENERATIONS}
        links = {
            number: {method.lower(): self.store.presign(key, method=method, endpoint=self.pods_endpoint) for method in ("GET", "PUT")}
            for number, key in results.items()
        }
        return {role: ["python3", "-c", FAKE, json.dumps(told | {"links": links})] for role, told in behaviour.items()}

    def gang(self, spec: RunSpec, behaviour: Behaviour, log: Log | None = None, timing: Timing = QUICK) -> tuple[GangRun, Log]:
        """The operator's run of a gang that behaves so, and its log."""
        log = log or Log()
        command = self.command(spec.run, behaviour)
        cluster = GangCluster(self.run_api, self.profile, spec, spec_digest(spec), log, timing, command)
        return GangRun(cluster, self.store), log

    def pods(self, run: str) -> list[PodView]:
        return pods(self.core, self.namespace, run)

    def quota(self, **hard: str) -> None:
        """Replace the namespace's quota."""
        body = {"metadata": {"name": "tenant"}, "spec": {"hard": {key.replace("_", "."): value for key, value in hard.items()}}}
        try:
            self.core.delete_namespaced_resource_quota("tenant", self.namespace)
        except k8s.ApiException as error:
            if error.status != 404:
                raise
        self.core.create_namespaced_resource_quota(self.namespace, body)
        wait_for(lambda: bool(self.core.read_namespaced_resource_quota("tenant", self.namespace).status.hard), "the quota is counted")

    def set_up(self) -> None:
        """Namespace, identity, rights, Secret and walls, as ``trainyard sync`` makes them."""
        self.core.create_namespace(objects.namespace(self.namespace, self.name))
        self.core.create_namespaced_service_account(self.namespace, objects.service_account(names.SERVICE_ACCOUNT, self.namespace))
        values = {"access_key": self.server.access_key, "secret_key": self.server.secret_key}
        self.core.create_namespaced_secret(self.namespace, objects.secret(names.SECRET_RUN, self.namespace, values))
        k8s.RbacAuthorizationV1Api(self.api).create_namespaced_role_binding(self.namespace, objects.run_binding(self.name))
        samples = load(CONFIG, environ={})
        tenant = samples.tenants["tabular"].model_copy(update={"name": self.name})
        settings = dataclasses.replace(samples, cluster=self.profile, tenants={self.name: tenant}, pipelines={})
        server = api_server(Applier(self.api))
        for manifest in policies(settings, tenant, s3_endpoint=self.pods_endpoint, api_server=server):
            k8s.NetworkingV1Api(self.api).create_namespaced_network_policy(self.namespace, manifest)
        wait_for_right(self.run_api, namespace=self.namespace, verb="create", group="batch", resource="jobs")

    def tear_down(self) -> None:
        for job in self.batch.list_namespaced_job(self.namespace).items:
            with contextlib.suppress(k8s.ApiException):  # what the chief's Job owns goes with it
                self.batch.delete_namespaced_job(job.metadata.name, self.namespace, propagation_policy="Background")
        self.core.delete_namespace(self.namespace)


def wait_for(true: Callable[[], bool], what: str, seconds: float = 40) -> None:
    """Wait until ``true()``; a generous bound, never a measurement."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


class Running(threading.Thread):
    """A gang's run in a thread, as a task would have it in a process."""

    def __init__(self, run: GangRun) -> None:
        super().__init__(daemon=True)
        self.gang = run
        self.outcome: GangOutcome | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.gang.run()
        except BaseException as error:  # handed to the test by result()
            self.error = error

    def result(self, seconds: float = 90) -> GangOutcome:
        self.join(seconds)
        assert not self.is_alive(), "the gang's run has not ended"
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome

    def leave(self) -> None:
        """Stop watching, as a killed task does."""
        self.gang.stop = True
        self.join(30)
        assert not self.is_alive()


POD_HOST = "TRAINYARD_TEST_HOST"
"""An address of this machine that pods reach, for clusters other than the embedded one."""


def gang_profile(profile: Profile) -> ClusterProfile:
    """The cluster under test, as the orchestration is told of it; its "trainer" needs Python only."""
    # Each process that tests has an embedded cluster of its own, and all of them have one network.
    ports = my_share(range(29000, 30000))
    return ClusterProfile(
        name="test",
        addressing="host" if profile.embedded else "dns",
        ports=PortRange(first=ports.start, last=ports.stop - 1, block=16) if profile.embedded else None,
        port=None if profile.embedded else 2222,
        images=Images(trainer=profile.image, airflow=profile.image),
        image_pull_policy="IfNotPresent",
        counts_scratch=profile.evicts_full_volumes,
        s3=S3(mode="external", bucket_prefix="test"),
    )


def make_tenant(api: k8s.ApiClient, run_api: k8s.ApiClient, profile: Profile, server: S3Server) -> Iterator[GangTenant]:
    """A tenant for one test module, gone afterwards."""
    with contextlib.ExitStack() as stack:
        endpoint = server.endpoint
        if host := os.environ.get(POD_HOST):
            port = int(server.endpoint.rsplit(":", 1)[1])
            endpoint = f"http://{host}:{stack.enter_context(relayed(host, port))}"
        elif not profile.embedded:
            pytest.skip(f"{POD_HOST} does not say by which address of this machine pods reach the S3 server")
        name, bucket = f"t{secrets.token_hex(4)}", server.new_bucket("gang")
        tenant = GangTenant(api, run_api, gang_profile(profile), server, name, bucket, endpoint)
        tenant.set_up()
        stack.callback(tenant.tear_down)
        yield tenant
