"""The commands people type."""

from __future__ import annotations

import json
import subprocess

from tests.cluster.support import Namespace, ended, python, running, script


def test_get_and_describe(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script("sleep 60")))
    namespace.wait_for(name, running)
    line = namespace.kubectl("get", "pod", name, "--no-headers").stdout.split()
    assert line[:4] == [name, "1/1", "Running", "0"]
    described = namespace.kubectl("describe", "pod", name).stdout
    assert "Status:           Running" in described
    assert "Started" in described, "the kubelet's events are there"


def test_the_status_column_of_pods_that_ended(namespace: Namespace) -> None:
    good, bad = (namespace.create(namespace.container(script(text))) for text in ("true", "exit 2"))
    for name in (good, bad):
        namespace.wait_for(name, ended)
    assert namespace.kubectl("get", "pod", good, "--no-headers").stdout.split()[2] == "Completed"
    assert namespace.kubectl("get", "pod", bad, "--no-headers").stdout.split()[2] == "Error"


def test_wait_logs_and_delete(namespace: Namespace) -> None:
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('one'); time.sleep(1); print('two'); time.sleep(60)"
    )
    name = namespace.create(namespace.container(python(program)))
    namespace.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    command = ["kubectl", "--kubeconfig", namespace.kubeconfig, "-n", namespace.name, "logs", "-f", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
        assert follower.stdout.readline() == "two\n"
        namespace.kubectl("delete", "pod", name, "--timeout=30s")
        assert follower.stdout.read() == ""
        assert follower.wait(30) == 0


def test_logs_of_all_containers(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script("echo a"), "one"), namespace.container(script("echo b"), "two"))
    namespace.wait_for(name, ended)
    text = namespace.kubectl("logs", name, "--all-containers", "--prefix").stdout
    assert sorted(text.splitlines()) == [f"[pod/{name}/one] a", f"[pod/{name}/two] b"]


def test_run_attaches_to_nothing_but_runs(namespace: Namespace) -> None:
    namespace.kubectl(
        "run", "by-hand", "--image", namespace.profile.image, "--restart=Never", "--command", "--", "sh", "-c", "echo by hand"
    )
    namespace.wait_for("by-hand", ended)
    assert namespace.kubectl("logs", "by-hand").stdout == "by hand\n"


def test_force_delete(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script('trap "" TERM; while :; do sleep 0.1; done')))
    namespace.wait_for(name, running)
    namespace.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--timeout=20s")
    namespace.wait_gone(name, within=5)


def test_the_node(namespace: Namespace) -> None:
    nodes = json.loads(namespace.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    workers = [node for node in nodes if not any(taint["effect"] == "NoSchedule" for taint in node["spec"].get("taints", []))]
    assert workers
    for node in workers:
        ready = next(item for item in node["status"]["conditions"] if item["type"] == "Ready")
        assert ready["status"] == "True"
        lease = json.loads(namespace.kubectl("get", "lease", "-n", "kube-node-lease", node["metadata"]["name"], "-o", "json").stdout)
        assert lease["spec"]["holderIdentity"] == node["metadata"]["name"]
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
