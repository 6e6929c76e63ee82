"""What is true while it is up: its status, who is answered, and what its identities may do."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.stack.support import Stack, events


def refused(call: Callable[[], object]) -> int:
    """The status with which an HTTP call is refused."""
    try:
        call()
    except urllib.error.HTTPError as error:
        return error.code
    raise AssertionError("it was answered")


def test_status_is_well_and_names_every_part(stack: Stack) -> None:
    code, value = stack.status()
    assert code == 0
    assert value["phase"] == "up"
    assert value["health"] == {"kubernetes": True, "node": True, "s3": True}
    assert set(value["components"]) == {"s3", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}
    assert {one["state"] for one in value["components"].values()} == {"running"}
    assert (stack.state / "state.json").stat().st_mode & 0o777 == 0o600


def test_a_second_up_says_that_it_is_up_already(stack: Stack) -> None:
    before = stack.document()["starter"]
    done = stack.up()
    assert done.returncode == 0
    note, up = events(done.stdout)
    assert "already up" in note["message"]
    assert up["event"] == "up"
    assert stack.document()["starter"] == before


def test_a_port_that_is_taken_is_named_with_its_owner_and_the_option(stack: Stack, fresh: Stack) -> None:
    fresh.base = stack.base
    done = fresh.up()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"port {stack.base + 1} (for s3) is taken by pid" in done.stderr
    assert "--port s3=N" in done.stderr
    assert stack.status()[0] == 0
    stack.aws("s3").create_bucket(Bucket="still-takes-writes")  # the refused one has taken nothing from it
    stack.aws("s3").put_object(Bucket="still-takes-writes", Key="a", Body=b"x" * 100_000)


def test_everything_listens_on_loopback_only(stack: Stack) -> None:
    ours = set(stack.living())
    inodes = set()
    for pid in ours:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(os.readlink(descriptor))
            except OSError:
                continue
    addresses = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                addresses.append(fields[1])
    assert len(addresses) >= 6
    assert {address.split(":")[0] for address in addresses} <= {"0100007F", "0000000000000000FFFF00000100007F"}
    ports = {int(address.split(":")[1], 16) for address in addresses}
    assert ports <= set(stack.document()["ports"].values())  # etcd has none, and no part opens one that is not in the plan


def test_nobody_is_answered_without_a_credential(stack: Stack) -> None:
    document = stack.document()
    context = __import__("ssl")._create_unverified_context()

    def ask(url: str, token: str | None = None) -> object:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context, timeout=10)

    server = document["kubernetes"]["server"]
    assert refused(lambda: ask(f"{server}/api/v1/namespaces")) == 401
    assert refused(lambda: ask(f"{server}/api/v1/namespaces", "wrong")) == 401
    with pytest.raises(OSError, match=r"(?i)certificate|tls|reset|closed|EOF"):
        ask(f"https://127.0.0.1:{document['ports']['kubelet']}/containerLogs/a/b/c").read()  # type: ignore[attr-defined]
    stack.aws("s3").create_bucket(Bucket="closed")
    assert refused(lambda: urllib.request.urlopen(f"{document['s3']['endpoint']}/closed", timeout=10)) == 403


def test_the_nodes_identity_can_do_what_a_node_may(stack: Stack) -> None:
    settings = client.Configuration()
    config.load_kube_config(str(stack.state / "kube" / "kubelet.kubeconfig"), client_configuration=settings)
    core = client.CoreV1Api(client.ApiClient(settings))
    assert core.read_node("local").metadata.name == "local"
    with pytest.raises(client.ApiException) as error:
        core.list_secret_for_all_namespaces()
    assert error.value.status == 403


def test_airflow_and_sync_have_the_rights_of_any_other_cluster(stack: Stack) -> None:
    """deploy/rbac, applied by the starter; `tests/cluster/test_identities.py` says what they are."""

    def core(name: str) -> client.CoreV1Api:
        settings = client.Configuration()
        config.load_kube_config(stack.document()["environment"][name], client_configuration=settings)
        return client.CoreV1Api(client.ApiClient(settings))

    run, sync = core("TRAINYARD_KUBECONFIG"), core("TRAINYARD_SYNC_KUBECONFIG")
    assert run.list_namespaced_pod("trainyard-platform").items == []
    made = {"metadata": {"name": "tenant-by-sync", "labels": {"app.kubernetes.io/managed-by": "trainyard"}}}
    for may_not in (lambda: run.create_namespace(made), lambda: sync.create_namespace({"metadata": {"name": "mine"}})):
        with pytest.raises(client.ApiException) as error:
            may_not()
        assert error.value.status in (403, 422)
    assert sync.create_namespace(made).metadata.name == "tenant-by-sync"
    with pytest.raises(client.ApiException) as error:
        sync.delete_namespace("tenant-by-sync")
    assert error.value.status == 403


def test_s3_identities_are_made_live_and_hold_to_their_bucket(stack: Stack) -> None:
    s3, iam = stack.aws("s3"), stack.aws("iam")
    for bucket in ("own", "others"):
        s3.create_bucket(Bucket=bucket)
    iam.create_user(UserName="run")
    statement = [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": ["arn:aws:s3:::own/*"]}]
    iam.put_user_policy(UserName="run", PolicyName="area", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statement}))
    key = iam.create_access_key(UserName="run")["AccessKey"]
    run = stack.aws("s3", {"access_key": key["AccessKeyId"], "secret_key": key["SecretAccessKey"]})
    run.put_object(Bucket="own", Key="a", Body=b"1", IfNoneMatch="*")
    with pytest.raises(run.exceptions.ClientError, match="PreconditionFailed"):
        run.put_object(Bucket="own", Key="a", Body=b"2", IfNoneMatch="*")
    with pytest.raises(run.exceptions.ClientError, match="AccessDenied"):
        run.put_object(Bucket="others", Key="a", Body=b"1")
    with pytest.raises(run.exceptions.ClientError, match=r"AccessDenied|Unknown|403"):
        stack.aws("iam", {"access_key": key["AccessKeyId"], "secret_key": key["SecretAccessKey"]}).create_user(UserName="more")
