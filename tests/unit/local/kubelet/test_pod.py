"""The state machine's beginning and middle (real processes: test_processes, tests/cluster)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from local.kubelet import pod as pod_module
from local.kubelet.api import Json
from tests.unit.local.kubelet.bench import Bench, Clock, container, deleted
from tests.unit.local.kubelet.conftest import IMAGE, pod_document


def test_from_pending_to_succeeded(bench: Bench) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    assert (bench.last["phase"], bench.state()) == ("Pending", {"waiting": {"reason": "ContainerCreating"}})
    _, command, environment, directory = bench.processes.started["main"]
    assert command == ["run"]
    assert environment["HOSTNAME"] == "p"
    assert environment["KUBERNETES_SERVICE_PORT"] == "6443"
    assert str(directory) == environment["HOME"]
    bench.processes.comes_up("main")
    pod.sync()
    assert (bench.last["phase"], bench.state()) == ("Running", {"running": {"startedAt": "2026-01-01T00:00:01Z"}})
    bench.processes.ends("main", 0)
    assert pod.sync() is None
    assert bench.last["phase"] == "Succeeded"
    assert bench.state()["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "containerID": "processes://4711",
        "startedAt": "2026-01-01T00:00:01Z",
        "finishedAt": "2026-01-01T00:00:02Z",
    }
    assert ("Normal", "Started") in bench.reporter.events


def test_nothing_is_said_when_nothing_changed(bench: Bench) -> None:
    pod = bench.pod(pod_document())
    for _ in range(3):
        pod.sync()
    assert len(bench.reporter.statuses) == 1


def test_init_containers_one_after_the_other(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(), initContainers=[container("a"), container("b")]))
    pod.sync()
    assert list(bench.processes.started) == ["a"]
    bench.processes.comes_up("a")
    pod.sync()
    assert bench.last["phase"] == "Pending"
    bench.processes.ends("a", 0)
    pod.sync()
    assert list(bench.processes.started) == ["a", "b"]
    bench.processes.ends("b", 0)
    pod.sync()
    assert list(bench.processes.started) == ["a", "b", "main"]


def test_an_init_container_that_fails_is_the_end(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(), initContainers=[container("a"), container("b")]))
    pod.sync()
    bench.processes.ends("a", 3)
    pod.sync()
    assert (bench.last["phase"], list(bench.processes.started)) == ("Failed", ["a"])
    assert bench.state("main") == {"waiting": {"reason": "PodInitializing"}}


def test_out_of_memory_is_137_with_its_reason(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(resources={"limits": {"memory": "64Mi"}})))
    pod.sync()
    process = bench.processes.started["main"][0]
    assert process.memory_limit == 64 << 20
    bench.processes.comes_up("main")
    process.out_of_memory = True
    bench.processes.ends("main", 143)
    pod.sync()
    assert (bench.state()["terminated"]["exitCode"], bench.state()["terminated"]["reason"]) == (137, "OOMKilled")


def test_a_start_error_is_shown(bench: Bench) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    bench.processes.ends("main", 128, reason="StartError", message='exec: "run": executable file not found in $PATH')
    pod.sync()
    assert bench.last["phase"] == "Failed"
    assert bench.state()["terminated"]["message"] == 'exec: "run": executable file not found in $PATH'
    assert ("Warning", "StartError") in bench.reporter.events


@pytest.mark.parametrize(
    ("image", "policy", "reasons"),
    [
        ("nginx", "IfNotPresent", ["ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"]),
        ("Bad Name", "IfNotPresent", ["InvalidImageName"]),
        ("nginx", "Never", ["ErrImageNeverPull"]),
    ],
)
def test_images_that_cannot_be_had(bench: Bench, clock: Clock, image: str, policy: str, reasons: list[str]) -> None:
    pod = bench.pod(pod_document(container(image=image, imagePullPolicy=policy)))
    seen = []
    for _ in range(len(reasons)):
        again = pod.sync()
        assert bench.last["phase"] == "Pending"
        seen.append(bench.state()["waiting"]["reason"])
        assert again is not None
        clock.passes(again + 0.01)
    assert seen == reasons
    assert bench.state()["waiting"]["message"]
    assert not bench.processes.started


def test_an_image_that_is_mapped_later_is_found(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document(container(image="nginx")))
    clock.passes((pod.sync() or 0) + 0.01)
    bench.starter.images.path.write_text('images: [{match: "nginx:*"}]')
    pod.sync()
    assert "main" in bench.processes.started


def test_a_missing_secret_is_tried_again_until_it_is_there(bench: Bench, clock: Clock) -> None:
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    pod = bench.pod(pod_document(container(env=env)))
    waits = []
    for _ in range(8):
        again = pod.sync()
        assert again is not None
        waits.append(again)
        assert bench.state() == {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}}
        clock.passes(again + 0.001)
    assert waits[0] < 1 < max(waits) <= 10
    bench.api.answers["GET", "/api/v1/namespaces/ns/secrets/s"] = {"data": {"k": base64.b64encode(b"v").decode()}}
    pod.sync()
    assert bench.processes.started["main"][2]["K"] == "v"


def test_a_volume_that_cannot_be_made_yet(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document(volumes=[{"name": "v", "secret": {"secretName": "s"}}]))
    again = pod.sync()
    assert bench.state()["waiting"]["reason"] == "ContainerCreating"
    assert 'volume "v"' in bench.state()["waiting"]["message"]
    clock.passes((again or 0) + 0.01)
    pod.sync()
    assert ("Warning", "FailedMount") in bench.reporter.events
    bench.api.answers["GET", "/api/v1/namespaces/ns/secrets/s"] = {"data": {}}
    clock.passes(10)
    pod.sync()
    assert "main" in bench.processes.started
    assert bench.state() == {"waiting": {"reason": "ContainerCreating"}}


def test_a_full_disk_is_said_and_tried_again(bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    pod = bench.pod(pod_document())
    with monkeypatch.context() as patched:
        patched.setattr(pod_module, "write_json", full)
        again = pod.sync()
        assert "No space left" in bench.state()["waiting"]["message"]
    clock.passes((again or 0) + 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "touch", full)
        again = pod.sync()
        assert bench.state()["waiting"] == {"reason": "CreateContainerError", "message": "No space left on device: somewhere"}
    clock.passes((again or 0) + 0.01)
    pod.sync()
    assert "main" in bench.processes.started


def test_the_generation_that_the_status_is_about(bench: Bench) -> None:
    bench.pod(pod_document(metadata={"generation": 3})).sync()
    assert bench.last["observedGeneration"] == 3


def test_no_command_at_all(bench: Bench) -> None:
    bench.starter.images.path.write_text('images: [{match: "example.org/app:*"}]')
    bench.pod(pod_document({"name": "main", "image": IMAGE})).sync()
    assert bench.state()["waiting"]["reason"] == "CreateContainerError"


def test_a_refused_pod_starts_nothing(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(livenessProbe={"x": 1})))
    assert pod.sync() is None
    assert (bench.last["phase"], bench.last["reason"]) == ("Failed", "UnsupportedByEmbeddedKubelet")
    assert bench.state()["waiting"]["reason"] == "UnsupportedByEmbeddedKubelet"
    assert not bench.processes.started
    assert not pod.folder.exists()


def test_a_refused_pod_of_a_controller_waits(bench: Bench) -> None:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
    pod = bench.pod(pod_document(restartPolicy="Always", metadata=owner))
    pod.sync()
    assert (bench.last["phase"], bench.last["reason"]) == ("Pending", "UnsupportedByEmbeddedKubelet")
    deleted(pod, 30)
    pod.sync()
    assert bench.reporter.deleted == 1


@pytest.mark.parametrize(
    ("policy", "code", "file", "log", "message"),
    [
        ("File", 1, b"from file", b"", "from file"),
        ("File", 0, b"done", b"", "done"),
        ("File", 1, b"", b"words", None),
        ("FallbackToLogsOnError", 1, b"", b"words", "words\n"),
        ("FallbackToLogsOnError", 0, b"", b"words", None),
        ("FallbackToLogsOnError", 1, b"file", b"words", "file"),
        ("File", 1, b"x" * 10_000, b"", "x" * 4096),
        ("FallbackToLogsOnError", 1, b"", b"y" * 10_000, "y" * 2047 + "\n"),
        ("File", 1, b"\xff", b"", "\ufffd"),
    ],
)
def test_termination_messages(bench: Bench, policy: str, code: int, file: bytes, log: bytes, message: str | None) -> None:
    pod = bench.pod(pod_document(container(terminationMessagePolicy=policy)))
    pod.sync()
    main = pod.main[0]
    main.termination_log.write_bytes(file)
    main.log.write_bytes(b"2026-01-01T00:00:00.000000000Z stdout F " + log + b"\n" if log else b"")
    bench.processes.ends("main", code)
    pod.sync()
    assert bench.state()["terminated"].get("message") == message


def test_the_termination_path_is_told_and_rewritten(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(terminationMessagePath="/tmp/end", args=["/tmp/end", "/dev/termination-log"])))
    pod.sync()
    _, command, environment, _ = bench.processes.started["main"]
    here = str(pod.main[0].termination_log)
    assert (command, environment["TRAINYARD_TERMINATION_LOG"]) == (["run", here, "/dev/termination-log"], here)


def test_mounts_are_named_and_the_service_account_has_a_name_of_its_own(bench: Bench) -> None:
    mounts = [
        {"name": "my-work", "mountPath": "/work"},
        {"name": "my-work", "mountPath": "/again"},
        {"name": "sub", "mountPath": "/sub", "subPath": "in/ner"},
        {"name": "kube-api-access-x7", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
    ]
    empty: list[Json] = [{"name": name, "emptyDir": {}} for name in ("my-work", "sub", "kube-api-access-x7")]
    pod = bench.pod(pod_document(container(volumeMounts=mounts, workingDir="/work/here"), volumes=empty))
    pod.sync()
    _, _, environment, directory = bench.processes.started["main"]
    place = pod.folder / "volumes"
    assert environment["TRAINYARD_MOUNT_MY_WORK"] == str(place / "my-work")
    assert environment["TRAINYARD_MOUNT_SUB"] == str(place / "sub" / "in" / "ner")
    assert environment["TRAINYARD_MOUNT_SERVICE_ACCOUNT"] == str(place / "kube-api-access-x7")
    assert directory == place / "my-work" / "here"
    assert directory.is_dir()


def test_a_working_directory_outside_of_volumes_is_below_the_private_folder(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(workingDir="/etc/app")))
    pod.sync()
    assert bench.processes.started["main"][3] == pod.main[0].work / "etc" / "app"
