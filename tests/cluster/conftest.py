"""One suite for any Kubernetes: KUBECONFIG names it, a profile says what differs; where there is none, the embedded cluster is started.

    KUBECONFIG=… pytest tests/cluster --cluster-profile profile.yaml

A profile is YAML with the fields of support.Profile (`image`, `absent_image`, `embedded`, `kubelet_root`, `patience`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from tests.cluster.gang_fixtures import tenant  # noqa: F401 - the gang's fixture, for all files of this folder
from tests.cluster.support import Namespace, Profile
from tests.cluster.tenant_support import settings  # noqa: F401 - and that of what sync is given
from tests.fixtures import identities as own
from tests.fixtures.identities import Identities
from tests.fixtures.platform import free_block

CHECKOUT = Path(__file__).resolve().parents[2]
UP_WITHIN_S = 900.0
"""With the Go build, where the control plane's binary is not in the cache yet."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster-profile", default=None, help="YAML: what the cluster under test has (tests/cluster/conftest.py)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster_profile(request: pytest.FixtureRequest) -> Profile:
    """What is true of the cluster under test."""
    file = request.config.getoption("--cluster-profile", None) or os.environ.get("TRAINYARD_CLUSTER_PROFILE")
    if not file:
        return Profile(embedded="KUBECONFIG" not in os.environ)
    values = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    unknown = sorted(set(values) - {item.name for item in fields(Profile)})
    if unknown:
        raise pytest.UsageError(f"{file}: {unknown[0]}: unknown key; known are {', '.join(item.name for item in fields(Profile))}")
    if "kubelet_root" in values:
        values["kubelet_root"] = Path(values["kubelet_root"])
    return Profile(**values)


@pytest.fixture(scope="session")
def cluster(cluster_profile: Profile) -> Iterator[tuple[str, Profile]]:
    """The kubeconfig of a cluster whose node is ready, and its profile."""
    given = os.environ.get("KUBECONFIG")
    if given:
        if not Path(given).is_file():
            pytest.skip(f"KUBECONFIG={given}: no such file")
        yield given, cluster_profile
        return
    with embedded_cluster() as folder:
        yield str(folder / "kube" / "admin.kubeconfig"), replace(cluster_profile, embedded=True, kubelet_root=folder / "kubelet")


@contextlib.contextmanager
def embedded_cluster() -> Iterator[Path]:
    """The embedded cluster without Airflow, for this session; yields its state folder. It ends with this process, however that ends."""
    with tempfile.TemporaryDirectory(prefix="ty-cluster-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "local.stack", "up", "--state", name, "--port-base", str(free_block(40)), "--json"]
        command += ["--no-airflow", "--no-sync", "--unsafe-no-fsync", "--foreground", "--tied"]
        log = folder / "up.log"
        with log.open("wb") as out:
            starter = subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + UP_WITHIN_S
            while not is_up(log):
                assert starter.poll() is None, f"the embedded cluster did not start:\n{log.read_text(errors='replace')[-4000:]}"
                assert time.monotonic() < deadline, f"the embedded cluster is not up:\n{log.read_text(errors='replace')[-4000:]}"
                time.sleep(0.2)
            yield folder
        finally:
            starter.send_signal(signal.SIGTERM)
            try:
                starter.wait(60)
            except subprocess.TimeoutExpired:
                starter.kill()
                starter.wait()


def is_up(log: Path) -> bool:
    """Whether the starter has said that everything runs."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            if json.loads(line).get("event") == "up":
                return True
    return False


@pytest.fixture(scope="session")
def cluster_api(cluster: tuple[str, Profile]) -> client.ApiClient:
    """A client of the cluster under test."""
    configuration = client.Configuration()
    config.load_kube_config(config_file=cluster[0], client_configuration=configuration)
    return client.ApiClient(configuration)


@pytest.fixture(scope="session")
def identities(cluster: tuple[str, Profile], tmp_path_factory: pytest.TempPathFactory) -> Identities:
    """Trainyard's own identities: what is under test acts as them, never as the administrator."""
    return own.make(cluster[0], tmp_path_factory.mktemp("identities"), ports=cluster[1].embedded)


def new_namespace(kubeconfig: str, profile: Profile, api: client.ApiClient) -> Namespace:
    """A namespace that is ready to take pods: its service account is there."""
    core = client.CoreV1Api(api)
    name = core.create_namespace({"metadata": {"generateName": "kubelet-"}}).metadata.name
    deadline = time.monotonic() + 30 * profile.patience
    while not core.list_namespaced_service_account(name, field_selector="metadata.name=default").items:
        assert time.monotonic() < deadline, f"namespace {name} has no default service account: does the controller manager run?"
        time.sleep(0.05)
    return Namespace(api, kubeconfig, profile, name)


@pytest.fixture(scope="module")
def namespace(cluster: tuple[str, Profile], cluster_api: client.ApiClient) -> Iterator[Namespace]:
    """A namespace for the cases of one file."""
    made = new_namespace(*cluster, cluster_api)
    yield made
    made.core.delete_namespace(made.name, grace_period_seconds=0)


@pytest.fixture
def own_namespace(cluster: tuple[str, Profile], cluster_api: client.ApiClient) -> Iterator[Namespace]:
    """A namespace for one case alone."""
    made = new_namespace(*cluster, cluster_api)
    yield made
    made.core.delete_namespace(made.name, grace_period_seconds=0)
