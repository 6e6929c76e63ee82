"""The life of the local stack as a program: up, again up, restart, SIGKILL of every part and of the starter, down. Without Airflow
(tests/chaos kills that one's parts in mid-training); with real etcd, API server, kubelet and S3."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from kubernetes import client, config

from local.leftovers import processes_of
from local.stack.processes import Identity
from tests.fixtures.platform import CHECKOUT, clean_environment, free_block, until

pytestmark = pytest.mark.slow
UP_WITHIN_S = 900.0  # with the Go build, where it is not in the cache yet


@dataclass
class Stack:
    """`python -m local.stack` on one state folder."""

    state: Path
    base: int = field(default_factory=lambda: free_block(20))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "local.stack", words[0], "--state", str(self.state), *words[1:]]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), cwd=CHECKOUT, env=clean_environment(), capture_output=True, text=True, timeout=UP_WITHIN_S
        )

    def spawn(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words), cwd=CHECKOUT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def up_words(self, *more: str) -> list[str]:
        return ["up", "--port-base", str(self.base), "--no-airflow", "--unsafe-no-fsync", "--json", *more]

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.call(*self.up_words(*more))

    def document(self) -> dict[str, Any]:
        return dict(json.loads((self.state / "state.json").read_text()))

    def status(self) -> tuple[int, dict[str, Any]]:
        done = self.call("status", "--json")
        return done.returncode, json.loads(done.stdout)

    def core(self) -> client.CoreV1Api:
        settings = client.Configuration()
        config.load_kube_config(self.document()["kubernetes"]["kubeconfig"], client_configuration=settings)
        return client.CoreV1Api(client.ApiClient(settings))

    def aws(self, service: str, keys: dict[str, str] | None = None) -> Any:
        keys = keys or json.loads((self.state / "s3" / "admin.json").read_text())
        return boto3.client(
            service,
            endpoint_url=self.document()["s3"]["endpoint"],
            region_name="us-east-1",
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}, s3={"addressing_style": "path"}),
        )

    def living(self) -> dict[int, str]:
        return processes_of(self.state)

    def nothing_lives(self) -> None:
        until(lambda: not self.living(), 20, lambda: f"nothing lives: {self.living()}")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Stack]:
    """A stack that is not up; after the test nothing of it lives."""
    stack = Stack(tmp_path / "var")
    yield stack
    stack.call("down")
    assert not stack.living()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One that is up; every case leaves it well."""
    one = Stack(tmp_path_factory.mktemp("stack") / "var")
    done = one.up()
    assert done.returncode == 0, done.stdout + done.stderr
    yield one
    done = one.call("down")
    assert done.returncode == 0, done.stderr
    assert not one.living(), "the stack is down"
    ports = [port for name, port in one.document()["ports"].items() if name.startswith("s3")]
    assert not [path for port in ports for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def refused(call: Callable[[], object]) -> int:
    """The status with which an HTTP call is refused."""
    try:
        call()
    except urllib.error.HTTPError as error:
        return error.code
    raise AssertionError("it was answered")


# ------------------------------------------------------------------------------------------------------------- while it is up
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


def test_restart_of_one_component_and_of_one_that_is_none(stack: Stack) -> None:
    before = stack.document()["components"]["kube-scheduler"]["pid"]
    done = stack.call("restart", "kube-scheduler", "--json")
    assert done.returncode == 0, done.stderr
    assert stack.document()["components"]["kube-scheduler"]["pid"] != before
    done = stack.call("restart", "kube-proxy")
    assert done.returncode == 1
    assert "no component 'kube-proxy': they are s3, etcd" in done.stderr
    assert stack.status()[0] == 0


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("etcd", "pid"),
        ("kube-apiserver", "pid"),
        ("kube-controller-manager", "pid"),
        ("kube-scheduler", "pid"),
        ("kubelet", "pid"),
        ("kubelet", "shim"),
        ("s3", "pid"),
        ("s3", "shim"),
    ],
)
def test_a_killed_part_comes_back_and_the_platform_goes_on(stack: Stack, name: str, who: str) -> None:
    before = stack.document()["components"][name]
    namespace = f"before-{name}-{who}"
    stack.core().create_namespace({"metadata": {"name": namespace}})
    os.kill(before[who], signal.SIGKILL)

    def back() -> bool:
        now = stack.document()["components"][name]
        return bool(now["state"] == "running" and now["pid"] not in (None, before["pid"]) and now["restarts"] > before["restarts"])

    until(back, 60, f"{name} is back")
    until(lambda: stack.status()[0] == 0, 60, lambda: f"all is well: {stack.status()[1]}")
    assert stack.core().read_namespace(namespace).metadata.name == namespace
    stack.core().delete_namespace(namespace)
    assert f"{name} ended with" in (stack.state / "log" / "starter.log").read_text()


# --------------------------------------------------------------------------------------------------------------- its end
def test_nothing_outlives_a_killed_starter_and_the_next_start_has_the_data(fresh: Stack) -> None:
    assert fresh.up().returncode == 0
    fresh.core().create_namespace({"metadata": {"name": "kept"}})
    fresh.aws("s3").create_bucket(Bucket="kept")
    fresh.aws("s3").put_object(Bucket="kept", Key="a", Body=b"x" * 100_000)
    everyone = [Identity.of(pid) for pid in fresh.living()]
    assert len(everyone) >= 13  # the starter, six components with their shims
    os.kill(fresh.document()["starter"]["pid"], signal.SIGKILL)
    until(lambda: not any(one.alive() for one in everyone), 10, "all are gone")
    fresh.nothing_lives()
    assert fresh.status()[0] == 3
    assert fresh.up().returncode == 0
    assert fresh.core().read_namespace("kept").metadata.name == "kept"
    assert len(fresh.aws("s3").get_object(Bucket="kept", Key="a")["Body"].read()) == 100_000


def test_what_survives_a_kill_of_starter_and_shims_at_once_is_ended_by_the_next(fresh: Stack) -> None:
    """The one way in which something can be left: nobody who could have killed it lived long enough."""
    assert fresh.up().returncode == 0
    document = fresh.document()
    deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork() and os._exit(0); time.sleep(600)"
    # A left-over of the kubelet's session: it stands for a child that its component had not told anyone of.
    leader = json.loads((fresh.state / "run" / "kubelet.process.json").read_text())["main"]
    stray = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, cwd=fresh.state)
    stray.wait()
    session = stray.pid
    for pid in [document["starter"]["pid"], *(one["shim"] for one in document["components"].values())]:
        os.kill(pid, signal.SIGKILL)
    value = {"name": "kubelet", "shim": leader, "main": [session, leader[1]]}
    (fresh.state / "run" / "kubelet.process.json").write_text(json.dumps(value))
    until(lambda: len(fresh.living()) == 1, 10, lambda: f"only the stray lives: {fresh.living()}")
    done = fresh.call("down")
    assert done.returncode == 0
    assert "ended 1 left-over processes" in done.stdout
    fresh.nothing_lives()


def test_down_of_what_is_not_up(fresh: Stack) -> None:
    done = fresh.call("down")
    assert done.returncode == 0
    assert "was not up" in done.stdout
    assert fresh.status()[0] == 3


@pytest.mark.parametrize(
    ("number", "phase"), [(signal.SIGINT, "Kubernetes control plane"), (signal.SIGTERM, "node"), (signal.SIGKILL, "node")]
)
def test_an_interrupted_up_leaves_nothing(fresh: Stack, number: signal.Signals, phase: str) -> None:
    up = fresh.spawn(*fresh.up_words())
    assert up.stdout is not None
    for line in up.stdout:
        event = json.loads(line)
        if event["event"] == "phase" and event["name"] == phase:
            break
    up.send_signal(number)
    assert up.wait(60) != 0
    fresh.nothing_lives()
    up.communicate()
    assert fresh.up().returncode == 0  # and the next start is not in its way


def test_an_up_while_another_starts_says_so(fresh: Stack) -> None:
    first = fresh.spawn(*fresh.up_words())
    until(lambda: (fresh.state / "state.json").exists() or first.poll() is not None, 60, "the first has begun")
    second = fresh.up()
    out, err = first.communicate(timeout=UP_WITHIN_S)
    assert first.returncode == 0, out + err
    # The first may have been up already when the second looked: then that is what it says.
    if second.returncode != 0:
        assert second.returncode == 3
        assert "is being started by pid" in second.stdout


def test_a_tied_stack_ends_with_its_parent(fresh: Stack) -> None:
    words = fresh.command(*fresh.up_words("--foreground", "--tied"))
    text = f"import subprocess, time; subprocess.Popen({words!r}, start_new_session=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", text], cwd=CHECKOUT, env=clean_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        for line in parent.stdout:
            if json.loads(line)["event"] == "up":
                break
        assert fresh.status()[0] == 0
    finally:
        parent.kill()
        parent.wait()
    fresh.nothing_lives()
    assert fresh.document()["phase"] == "down"  # it ended in order
    parent.stdout.close()


def test_a_full_disk_is_one_line(fresh: Stack, tmp_path: Path) -> None:
    """A file system of 1 MB, where this machine lets us mount one."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        fresh.state = small / "var"
        done = fresh.up()
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "no space left for the platform" in done.stderr
        assert not fresh.living()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
        fresh.state = tmp_path / "var"


def test_a_left_over_socket_file_is_no_obstacle(fresh: Stack) -> None:
    for name in ("run", "kube/etcd"):
        (fresh.state / name).mkdir(parents=True)
    for path in (fresh.state / "run" / "control.sock", fresh.state / "kube" / "etcd" / "etcd.sock:0"):
        here = os.getcwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path.name)
        os.chdir(here)
    began = time.monotonic()
    done = fresh.up()
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 120
