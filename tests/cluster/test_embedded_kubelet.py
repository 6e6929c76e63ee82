"""What is true of the embedded cluster only: its kubelet dies and comes back, and some things are refused by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.support import Namespace, ended, ready, running, script, state, terminated

DAEMON = "(setsid sleep 7200 </dev/null >/dev/null 2>&1 &); sleep 7200"


@pytest.fixture
def embedded(namespace: Namespace) -> Namespace:
    """The namespace, where the cluster is the embedded one."""
    if not namespace.profile.embedded:
        pytest.skip("only the embedded cluster")
    return namespace


@pytest.fixture
def root(embedded: Namespace) -> Path:
    """The kubelet's folder."""
    if embedded.profile.kubelet_root is None:
        pytest.skip("the profile does not say where the kubelet's root folder is (kubelet_root)")
    return embedded.profile.kubelet_root


def kubelet_pid(root: Path) -> int:
    return int((root / "lock").read_text())


def processes_below(folder: Path) -> list[psutil.Process]:
    """Every process whose home is in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(f"{folder}/") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(condition: Any, within: float, what: str) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def restarted(root: Path, before: int, within: float = 60.0) -> int:
    """The pid of the kubelet that took over."""

    def another() -> bool:
        text = (root / "lock").read_text()
        return bool(text) and int(text) != before and psutil.pid_exists(int(text))

    wait_until(another, within, "no kubelet came back: the cluster's starter should have restarted it")
    return kubelet_pid(root)


def test_a_killed_kubelet_takes_its_containers_along_and_the_next_reports_them(embedded: Namespace, root: Path) -> None:
    name = embedded.create(embedded.container(script(f"echo before; {DAEMON}")))
    done = embedded.create(embedded.container(script("echo whole")))
    pod = embedded.wait_for(name, ready)
    embedded.wait_for(done, ended)
    folder = root / "pods" / pod["metadata"]["uid"]
    wait_until(lambda: len(processes_below(folder)) >= 3, 10, "the shell, its sleep and the daemon should run")
    before = kubelet_pid(root)
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not processes_below(folder), 5, "a container outlived its kubelet")
    restarted(root, before)
    pod = embedded.wait_for(name, ended, within=60)
    assert pod["status"]["phase"] == "Failed"
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (137, "ContainerStatusUnknown")
    assert "kubelet" in terminated(pod)["message"]
    # What had ended before is as it was, and logs are there.
    assert embedded.pod(done)["status"]["phase"] == "Succeeded"
    wait_until(lambda: embedded.kubectl("logs", done, check=False).stdout == "whole\n", 20, "the log of an earlier pod is gone")
    assert embedded.logs(name) == "before\n"
    # And new pods run.
    after = embedded.run(script("echo after"), within=60)
    assert after["status"]["phase"] == "Succeeded"


def test_a_killed_runtime_is_the_end_of_all_containers(embedded: Namespace, root: Path) -> None:
    name = embedded.create(embedded.container(script(DAEMON)))
    pod = embedded.wait_for(name, ready)
    folder = root / "pods" / pod["metadata"]["uid"]
    before = kubelet_pid(root)
    runtime = next(child for child in psutil.Process(before).children() if "local.kubelet.runtime" in child.cmdline())
    runtime.kill()
    wait_until(lambda: not processes_below(folder), 5, "a container outlived the runtime")
    restarted(root, before)
    pod = embedded.wait_for(name, ended, within=60)
    assert terminated(pod)["exitCode"] == 137


def test_the_kubelet_and_its_runtime_killed_at_once(embedded: Namespace, root: Path) -> None:
    name = embedded.create(embedded.container(script(DAEMON)))
    pod = embedded.wait_for(name, ready)
    folder = root / "pods" / pod["metadata"]["uid"]
    before = psutil.Process(kubelet_pid(root))
    family = [before, *before.children(recursive=True)]
    shims = [process for process in family if process.ppid() != before.pid and "local.kubelet.runtime" in " ".join(process.cmdline())]
    assert shims
    for process in [before, *before.children(), *shims]:
        process.suspend()
    for process in [before, *before.children(), *shims]:
        process.kill()
    restarted(root, before.pid)
    embedded.wait_for(name, ended, within=60)
    wait_until(lambda: not processes_below(folder), 10, "a left-over was not reaped")


def test_a_container_that_ended_while_the_kubelet_was_away_keeps_its_exit_code(embedded: Namespace, root: Path) -> None:
    """The kubelet is stopped, the container ends, and only then the kubelet is killed: the record on disk says how it ended."""
    name = embedded.create(embedded.container(script("sleep 2; echo result; exit 9")))
    pod = embedded.wait_for(name, running)
    kubelet = psutil.Process(kubelet_pid(root))
    kubelet.suspend()
    record = root / "pods" / pod["metadata"]["uid"] / "containers" / "main" / "exit.json"
    wait_until(record.exists, 10, "the shim wrote no record")
    kubelet.kill()
    restarted(root, kubelet.pid)
    pod = embedded.wait_for(name, ended, within=60)
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (9, "Error")


def test_a_shorter_grace_period_overtakes_a_longer_one(embedded: Namespace) -> None:
    """A real kubelet is meant to do this too; 1.34 with containerd 1.6 was seen to let the longer one run."""
    name = embedded.create(embedded.container(script('trap "" TERM; echo ready; while :; do sleep 0.1; done')))
    embedded.wait_for(name, lambda _: running(_) and "ready" in embedded.logs(name))
    embedded.core.delete_namespaced_pod(name, embedded.name, grace_period_seconds=300)
    time.sleep(0.5)
    embedded.core.delete_namespaced_pod(name, embedded.name, grace_period_seconds=1)
    embedded.wait_gone(name, within=30)


def test_the_folder_of_a_pod_goes_with_the_pod(embedded: Namespace, root: Path) -> None:
    name = embedded.create(embedded.container(script("mkdir locked; touch locked/file; chmod 500 locked; echo made")))
    pod = embedded.wait_for(name, ended)
    folder = root / "pods" / pod["metadata"]["uid"]
    assert folder.is_dir()
    embedded.core.delete_namespaced_pod(name, embedded.name)
    embedded.wait_gone(name)
    wait_until(lambda: not folder.exists(), 10, "the folder stays")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"restartPolicy": "Always"}, "spec.restartPolicy: Always"),
        ({"restartPolicy": "OnFailure"}, "spec.restartPolicy: OnFailure"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/tmp"}}]}, "spec.volumes[v].hostPath"),
        ({"hostAliases": [{"ip": "127.0.0.1", "hostnames": ["x"]}]}, "spec.hostAliases"),
    ],
)
def test_what_a_pod_may_not_ask_is_refused_by_name(embedded: Namespace, change: dict[str, Any], field: str) -> None:
    pod = embedded.wait_for(embedded.create(embedded.container(script("true")), **change), ended)
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "UnsupportedByEmbeddedKubelet")
    assert field in pod["status"]["message"]
    assert "docs/embedded-kubelet.md" in pod["status"]["message"]


def test_probes_are_refused_by_name(embedded: Namespace) -> None:
    probe = {"exec": {"command": ["true"]}}
    pod = embedded.wait_for(embedded.create(embedded.container(script("true"), readinessProbe=probe)), ended)
    assert "spec.containers[main].readinessProbe" in pod["status"]["message"]
    assert state(pod)["waiting"]["reason"] == "UnsupportedByEmbeddedKubelet"


def test_exec_is_refused_by_name(embedded: Namespace) -> None:
    name = embedded.create(embedded.container(script("sleep 60")))
    embedded.wait_for(name, running)
    refused = embedded.kubectl("exec", name, "--", "true", check=False)
    assert refused.returncode != 0
    with pytest.raises(ApiException) as answer:
        embedded.core.connect_get_namespaced_pod_exec(name, embedded.name, command="true")
    assert answer.value.status in (400, 501)


def test_a_deployment_does_not_fill_the_cluster_with_failed_pods(embedded: Namespace) -> None:
    """Its controller replaces a failed pod at once: so a pod of a controller that is no Job waits, with the reason."""
    embedded.kubectl("create", "deployment", "web", "--image", embedded.profile.image)
    wait_until(lambda: embedded.core.list_namespaced_pod(embedded.name, label_selector="app=web").items, 20, "no pod")
    name = embedded.core.list_namespaced_pod(embedded.name, label_selector="app=web").items[0].metadata.name
    pod = embedded.wait_for(name, lambda pod: pod["status"].get("reason"))
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Pending", "UnsupportedByEmbeddedKubelet")
    time.sleep(1)
    assert len(embedded.core.list_namespaced_pod(embedded.name, label_selector="app=web").items) == 1
    embedded.kubectl("delete", "deployment", "web", "--timeout=20s")


@pytest.mark.slow
def test_two_hundred_pods(own_namespace: Namespace) -> None:
    """The node's whole room at once: all come up, all go, and no process is left."""
    if not own_namespace.profile.embedded:
        pytest.skip("only the embedded cluster")
    count = 190
    template = {
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [own_namespace.container(["sleep", "600"])]}
    }
    batch = client.BatchV1Api(own_namespace.api)
    batch.create_namespaced_job(
        own_namespace.name, {"metadata": {"name": "crowd"}, "spec": {"parallelism": count, "completions": count, "template": template}}
    )
    wait_until(lambda: batch.read_namespaced_job("crowd", own_namespace.name).status.ready == count, 180, "not all pods came up")
    batch.delete_namespaced_job("crowd", own_namespace.name, propagation_policy="Foreground")
    wait_until(lambda: not own_namespace.core.list_namespaced_pod(own_namespace.name).items, 180, "pods are left")
