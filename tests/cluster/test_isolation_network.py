"""From inside one tenant's pod towards another tenant's gang, the API server, the metadata address and S3's other ports: refused.

Only where NetworkPolicies are enforced (``enforces_policies`` of the profile). That a refusal is the policies' doing, and not a place where
nothing listens, is shown by a pod in a namespace without any: it connects to each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import POD_HOST, GangTenant, Running, behave, make_tenant, wait_for
from tests.cluster.relay import relayed
from tests.cluster.support import Namespace, Profile, ended
from tests.fixtures.identities import Identities
from tests.fixtures.s3 import S3Server
from trainyard.contract import names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import labels
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.upkeep.applying import Applier
from trainyard.upkeep.network import api_server

METADATA = "169.254.169.254"
RESOURCES = {"cpu": "50m", "memory": "64Mi"}
PORT = 2222
ATTEMPT = """
import json, socket, sys, time
places = json.loads(sys.argv[1])
def tried(host, port):
    try:
        socket.create_connection((host, port), timeout=2).close()
        return "connected"
    except OSError as error:
        return f"{type(error).__name__}: {error}"
# What may be reached is reached first: from then on a refusal is no new pod's, whose network is not there yet.
host, port = places.pop("s3")
ends = time.monotonic() + 60
while (said := tried(host, port)) != "connected" and time.monotonic() < ends:
    time.sleep(0.5)
found = {"s3": said}
for name, (host, port) in places.items():
    for _ in range(3):
        found[name] = tried(host, port)
        if found[name] == "connected":
            break
        time.sleep(0.5)
print(json.dumps(found), flush=True)
"""
Places = dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def two(
    cluster: tuple[str, Profile], cluster_api: k8s.ApiClient, identities: Identities, s3_server: S3Server
) -> Iterator[tuple[GangTenant, GangTenant]]:
    """Two tenants with the policies that ``trainyard sync`` makes."""
    if not cluster[1].enforces_policies:
        pytest.skip("nothing enforces NetworkPolicies here (enforces_policies of the profile)")
    with identities.client(identities.run) as run_api, contextlib.ExitStack() as stack:
        make = contextlib.contextmanager(make_tenant)
        a, b = (stack.enter_context(make(cluster_api, run_api, cluster[1], s3_server)) for _ in range(2))
        yield a, b


@pytest.fixture(scope="module")
def metadata_server() -> Iterator[int]:
    """Something that answers at the metadata address, as every cloud has it: on this machine, for as long as the tests run."""
    address = (f"{METADATA}/32", "dev", "lo")
    if os.geteuid() or subprocess.run(["ip", "addr", "add", *address], capture_output=True, check=False).returncode:
        pytest.skip("this machine cannot be given the metadata address: that wants root, and ip")
    try:
        with relayed(METADATA, 9) as port:
            yield port
    finally:
        subprocess.run(["ip", "addr", "del", *address], check=True)


@pytest.fixture(scope="module")
def gang(two: tuple[GangTenant, GangTenant]) -> Iterator[RunSpec]:
    """B's gang, whose replicas have found each other through its policy."""
    _, b = two
    spec = b.spec(training__deadline_s=900)
    run, _ = b.gang(spec, behave(**{role: {"meet": True, "seconds": 600} for role in names.ROLES}))
    running = Running(run)
    chief = f"{names.LABEL_RUN}={spec.run},{names.LABEL_ROLE}={names.ROLE_CHIEF}"

    def met() -> bool:
        assert running.error is None, running.error
        pods = b.core.list_namespaced_pod(b.namespace, label_selector=chief).items
        if not pods or pods[0].status.phase != "Running":
            return False
        return "met all" in b.core.read_namespaced_pod_log(pods[0].metadata.name, b.namespace)

    wait_for(met, "the gang's replicas reach each other", 120)
    yield spec
    running.leave()


def places_of(b: GangTenant, spec: RunSpec, server_ports: Mapping[str, int]) -> Places:
    """Where A's pod tries to get."""
    servers = [pod for pod in b.core.list_namespaced_pod(b.namespace).items if pod.metadata.labels[names.LABEL_ROLE] == names.ROLE_PS]
    job = names.job_name(spec.run, 1, names.ROLE_PS)
    node = servers[0].status.host_ip
    api = api_server(Applier(b.api))
    found: Places = {
        "parameter server by name": (f"{job}-0.{names.gang_name(spec.run, 1)}.{b.namespace}.svc.cluster.local", PORT),
        "parameter server by address": (servers[0].status.pod_ip, PORT),
        "kubelet of its node": (node, 10250),
        "metadata": (METADATA, server_ports["metadata"]),
        "another port of S3's machine": (os.environ[POD_HOST], server_ports["other"]),
    }
    service = k8s.CoreV1Api(b.api).read_namespaced_service("kubernetes", "default").spec
    found["API server's service"] = (service.cluster_ip, service.ports[0].port)
    for address in api.addresses:
        if address != service.cluster_ip:
            found[f"API server at {address}"] = (address, max(api.ports))
    return found


def attempt(namespace: Namespace, places: Places, **more: str) -> dict[str, str]:
    """What a pod in this namespace, with these labels besides, gets to: place → ``connected``, or why not."""
    parts = PodParts(
        site=Site(namespace.profile.image, "IfNotPresent", counts_scratch=False),
        command=["python3", "-c", ATTEMPT, json.dumps(places)],
        resources=RESOURCES,
        scratch="16Mi",
        environment={},
        labels={names.LABEL_MANAGED_BY: names.MANAGED_BY} | more,
        service_account="default",
    )
    name = f"attacker-{secrets.token_hex(3)}"
    namespace.core.create_namespaced_pod(namespace.name, as_pod(pod_template(parts), name, namespace.name))
    namespace.wait_for(name, ended, 90)
    found: dict[str, str] = json.loads(namespace.logs(name).strip().splitlines()[-1])
    return found


def test_a_pod_of_one_tenant_reaches_s3_and_nothing_of_anybody_elses(
    two: tuple[GangTenant, GangTenant],
    gang: RunSpec,
    metadata_server: int,
    cluster: tuple[str, Profile],
    cluster_api: k8s.ApiClient,
    own_namespace: Namespace,
) -> None:
    a, b = two
    s3_port = int(a.pods_endpoint.rsplit(":", 1)[1])
    with relayed(os.environ[POD_HOST], 9) as other:
        places = places_of(b, gang, {"metadata": metadata_server, "other": other})
        to_try = {"s3": (os.environ[POD_HOST], s3_port), **places}
        control = attempt(own_namespace, to_try)
        # The parameter servers' wall is their own; everything else here only A's policy keeps from A.
        unwalled = {name for name, said in control.items() if said == "connected"}
        assert unwalled == set(to_try) - {"parameter server by name", "parameter server by address"}, control

        here = Namespace(cluster_api, cluster[0], cluster[1], a.namespace)
        said = attempt(here, to_try)
        assert said.pop("s3") == "connected"
        assert "connected" not in said.values(), said

        # With the labels of B's gang, in A's namespace: a policy's members are those of its own namespace.
        stolen = labels.gang_labels(gang, 1, names.ROLE_WORKER)
        said = attempt(here, to_try, **stolen)
        assert said.pop("s3") == "connected"
        assert "connected" not in said.values(), said


def test_another_run_of_the_same_tenant_is_kept_out_too(
    two: tuple[GangTenant, GangTenant], gang: RunSpec, cluster: tuple[str, Profile], cluster_api: k8s.ApiClient
) -> None:
    _, b = two
    s3 = (os.environ[POD_HOST], int(b.pods_endpoint.rsplit(":", 1)[1]))
    server = next(pod for pod in b.core.list_namespaced_pod(b.namespace).items if pod.metadata.labels[names.LABEL_ROLE] == names.ROLE_PS)
    to_try: Places = {"s3": s3, "parameter server": (server.status.pod_ip, PORT)}
    here = Namespace(cluster_api, cluster[0], cluster[1], b.namespace)
    said = attempt(here, to_try, **labels.step_labels(b.spec(), "evaluate"))
    assert said["s3"] == "connected"
    assert said["parameter server"] != "connected"
    # An earlier generation of the same run has no business there either.
    said = attempt(here, to_try, **labels.gang_labels(gang, 2, names.ROLE_WORKER))
    assert said["s3"] == "connected"
    assert said["parameter server"] != "connected"
