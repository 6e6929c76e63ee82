"""SIGKILL of every part and of the starter: what is left of them, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from local.stack.processes import Identity
from tests.fixtures.platform import until
from tests.stack.support import Stack


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
