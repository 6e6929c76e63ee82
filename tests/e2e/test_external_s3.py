"""A cluster and an S3 server that are somebody's: an administrator gives keys and buckets, a company's authority signed the certificate.

The cluster is the embedded one without its platform, driven by its kubeconfigs as any other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from local.stack import certificates
from tests.fixtures import s3
from tests.fixtures.platform import CHECKOUT, Platform, Result, clean_environment, config_with
from tests.stack.support import Stack
from trainyard.contract import names
from trainyard.settings import load
from trainyard.store.identities import Buckets
from trainyard.upkeep import storage

pytestmark = [pytest.mark.long, pytest.mark.slow]

SITE = "site"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """SeaweedFS behind TLS."""
    made, process = s3.start(tmp_path_factory.mktemp("s3"), certificates.ensure(tmp_path_factory.mktemp("authority")))
    yield made
    s3.stop(process)


@pytest.fixture(scope="module")
def site(server: s3.S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Airflow's side, up; nobody has given S3's keys to the cluster yet."""
    folder = tmp_path_factory.mktemp("site")
    stack = Stack(folder / "cluster")
    done = stack.up()
    assert done.returncode == 0, done.stderr
    config = config_with(folder)
    profile = yaml.safe_load((config / "clusters" / "embedded.yaml").read_text(encoding="utf-8"))
    profile["s3"] = {"mode": "external", "endpoint": server.endpoint, "ca_bundle": "authority.pem", "bucket_prefix": "company"}
    (config / "clusters" / f"{SITE}.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    assert server.ca is not None
    (config / "clusters" / "authority.pem").write_bytes(server.ca.read_bytes())
    keys = folder / "keys.json"
    keys.touch(mode=0o600)
    keys.write_text(json.dumps({"access_key": server.access_key, "secret_key": server.secret_key}), encoding="utf-8")
    told = {
        "TRAINYARD_KUBECONFIG": str(stack.state / "kube" / "airflow.kubeconfig"),
        "TRAINYARD_SYNC_KUBECONFIG": str(stack.state / "kube" / "sync.kubeconfig"),
        "TRAINYARD_S3_CREDENTIALS": str(keys),
    }
    platform = Platform(folder / "var", config, cluster=SITE, admin=str(stack.state / "kube" / "admin.kubeconfig"), told=told)
    try:
        platform.start()
        yield platform
    finally:
        left = platform.stop()
        stack.call("down")
    assert not left
    assert not stack.living()


def sync(site: Platform) -> Result:
    environment = {**clean_environment(), **site.told, "PYTHONPATH": str(CHECKOUT / "plugins")}
    environment |= {"TRAINYARD_CONFIG": str(site.config), "TRAINYARD_CLUSTER": SITE}
    command = [sys.executable, "-c", "from trainyard.cli.main import app; app()", "sync", "--state", str(site.state)]
    done = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def give_keys(site: Platform, server: s3.S3Server) -> None:
    """What an administrator does, by what sync has said: buckets, S3 users with just these rights, and Secrets with their keys."""
    environment = {"TRAINYARD_CONFIG": str(site.config), "TRAINYARD_CLUSTER": SITE}
    settings = load(site.config, environ=environment)
    for tenant in settings.tenants:
        buckets = Buckets.of(settings.cluster.s3.bucket_prefix, tenant)
        for bucket in (buckets.data, buckets.models):
            server.client().create_bucket(Bucket=bucket)
    iam = server.client("iam")
    for identity in storage.identities(settings):
        iam.create_user(UserName=identity.user)
        iam.put_user_policy(UserName=identity.user, PolicyName="given", PolicyDocument=json.dumps(identity.policy))
        key = iam.create_access_key(UserName=identity.user)["AccessKey"]
        values = {"access_key": key["AccessKeyId"], "secret_key": key["SecretAccessKey"]}
        site.core().create_namespaced_secret(identity.namespace, {"metadata": {"name": identity.secret}, "stringData": values})


def test_it_names_what_is_missing_and_trains_when_it_is_there(site: Platform, server: s3.S3Server, tmp_path: Path) -> None:
    said = sync(site)
    assert said.code == 0, said.err
    missing = [line for line in said.out.splitlines() if "s3 is external" in line]
    assert any(f"{names.namespace('vision')}/{names.SECRET_RUN}" in line for line in missing), said.out
    assert any(f"{names.PLATFORM_NAMESPACE}/{names.SECRET_UPKEEP}" in line for line in missing), said.out

    give_keys(site, server)
    said = sync(site)
    assert (said.code, "s3 is external" in said.out) == (0, False), said.out
    end = site.run("digits-mlp")
    assert (end["state"], end["outcome"]) == ("success", "exported")
    site.no_pods()
    found = server.client().list_objects_v2(Bucket="company-vision-models", Prefix="digits-mlp/1/")["Contents"]
    assert any(item["Key"].endswith("saved_model.pb") for item in found)

    # A laptop trusts the server by itself.
    fetch = [*site.command("model", "get", "digits-mlp", "-o")]
    for folder, trusting in (("without", {}), ("with", {"SSL_CERT_FILE": str(server.ca)})):
        environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"} | site.environment() | trusting
        done = subprocess.run([*fetch, str(tmp_path / folder)], env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) is bool(trusting), done.stderr
        assert "Traceback" not in done.stderr
        assert (tmp_path / folder).exists() is bool(trusting)
        if not trusting:
            assert "CERTIFICATE_VERIFY_FAILED" in done.stderr, done.stderr
