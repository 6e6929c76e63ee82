"""The state machine, with the runtime and the API server in the test's hands (real processes: test_processes, tests/cluster)."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from local.kubelet import pod as pod_module
from local.kubelet.api import Json
from local.kubelet.images import Images
from local.kubelet.node import Capacity
from local.kubelet.pod import Pod, remove_folder, retry_after
from local.kubelet.start import Starter
from local.kubelet.volumes import Volumes
from tests.unit.local.kubelet.conftest import IMAGE, FakeApi, FakeProcesses, pod_document


class Reporter:
    def __init__(self) -> None:
        self.statuses: list[Json] = []
        self.deleted = 0
        self.events: list[tuple[str, str]] = []

    def status(self, pod: Json, status: Json) -> None:
        self.statuses.append(status)

    def delete(self, pod: Json) -> None:
        self.deleted += 1

    def event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason))


class Clock:
    """Monotonic and wall time, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        real = time.time()
        monkeypatch.setattr(pod_module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(pod_module.time, "time", lambda: real + self.now - 1000.0)

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Bench:
    """One pod with all it needs."""

    def __init__(self, api: FakeApi, images: Images, folder: Path) -> None:
        self.api, self.folder = api, folder
        self.processes, self.reporter = FakeProcesses(), Reporter()
        self.starter = Starter(api, self.processes, images, Capacity(4, 1 << 30), lambda uid: None)  # type: ignore[arg-type]

    def pod(self, document: Json) -> Pod:
        folder = self.folder / document["metadata"]["uid"]
        volumes = Volumes(document, folder / "volumes", self.starter.sources(document), self.starter.capacity)
        return Pod(document, folder, self.starter, self.reporter, volumes)

    @property
    def last(self) -> Json:
        return self.reporter.statuses[-1]

    def state(self, name: str = "main") -> Json:
        for item in [*self.last["containerStatuses"], *self.last["initContainerStatuses"]]:
            if item["name"] == name:
                return item["state"]
        raise KeyError(name)


@pytest.fixture
def bench(api: FakeApi, images: Images, tmp_path: Path) -> Bench:
    return Bench(api, images, tmp_path / "pods")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def container(name: str = "main", **more: Any) -> Json:
    return {"name": name, "image": IMAGE, "command": ["run"], **more}


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


def deleted(pod: Pod, grace: int | None = None) -> None:
    document = json.loads(json.dumps(pod.document))
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    if grace is not None:
        document["metadata"]["deletionGracePeriodSeconds"] = grace
    assert pod.update(document)


def test_deletion_is_term_then_kill_then_the_object_goes(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document(container(), container("b")))
    pod.sync()
    for name in ("main", "b"):
        bench.processes.comes_up(name)
    pod.sync()
    deleted(pod, 5)
    again = pod.sync()
    assert bench.processes.signals == [("TERM", "main"), ("TERM", "b")]
    assert again == pytest.approx(5)
    bench.processes.ends("main", 143)
    clock.passes(4)
    pod.sync()
    assert len(bench.processes.signals) == 2
    clock.passes(1.5)
    pod.sync()
    assert bench.processes.signals[2:] == [("KILL", "b")]
    pod.sync()
    assert len(bench.processes.signals) == 3, "killed once"
    assert bench.reporter.deleted == 0
    bench.processes.ends("b", 137)
    pod.sync()
    assert (bench.last["phase"], bench.reporter.deleted) == ("Failed", 1)
    assert [bench.state(name)["terminated"]["exitCode"] for name in ("main", "b")] == [143, 137]


def test_a_grace_period_becomes_shorter_never_longer(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    bench.processes.comes_up("main")
    deleted(pod, 300)
    assert pod.sync() == pytest.approx(300)
    deleted(pod, 2)
    assert pod.sync() == pytest.approx(2)
    document = json.loads(json.dumps(pod.document))
    document["metadata"]["deletionGracePeriodSeconds"] = 100
    pod.update(document)
    assert pod.sync() == pytest.approx(2)


def test_grace_0_still_gives_a_second(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    bench.processes.comes_up("main")
    deleted(pod, 0)
    assert pod.sync() == pytest.approx(1)


def test_an_object_that_vanished_is_the_end_within_a_second(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document(terminationGracePeriodSeconds=600))
    pod.sync()
    bench.processes.comes_up("main")
    pod.sync()
    said = len(bench.reporter.statuses)
    pod.remove()
    assert pod.sync() == pytest.approx(1)
    clock.passes(1.1)
    pod.sync()
    assert bench.processes.signals == [("TERM", "main"), ("KILL", "main")]
    bench.processes.ends("main", 137)
    assert pod.folder.exists()
    assert pod.sync() is None
    assert pod.gone
    assert not pod.folder.exists()
    assert len(bench.reporter.statuses) == said, "there is nobody to tell"


def test_a_pod_deleted_before_it_started(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(image="nginx")))
    pod.sync()
    deleted(pod, 30)
    pod.sync()
    assert (bench.last["phase"], bench.reporter.deleted) == ("Failed", 1)
    assert not bench.processes.started


def test_a_pod_deleted_between_init_and_main(bench: Bench) -> None:
    pod = bench.pod(pod_document(container(), initContainers=[container("a")]))
    pod.sync()
    deleted(pod, 30)
    pod.sync()
    bench.processes.ends("a", 0)
    pod.sync()
    assert (bench.last["phase"], list(bench.processes.started)) == ("Failed", ["a"])


def test_the_last_word_of_a_pod_that_ended_well_when_told_to(bench: Bench) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    bench.processes.comes_up("main")
    deleted(pod, 30)
    pod.sync()
    bench.processes.ends("main", 0)
    pod.sync()
    assert bench.last["phase"] == "Succeeded"


def test_the_active_deadline(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document(activeDeadlineSeconds=60, terminationGracePeriodSeconds=7))
    pod.sync()
    bench.processes.comes_up("main")
    again = pod.sync()
    assert again == pytest.approx(60, abs=1.5)
    clock.passes(62)
    assert pod.sync() == pytest.approx(7)
    assert bench.processes.signals == [("TERM", "main")]
    assert bench.last["phase"] == "Running"
    bench.processes.ends("main", 0)
    pod.sync()
    assert (bench.last["phase"], bench.last["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_deadline_may_be_set_later(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    bench.processes.comes_up("main")
    clock.passes(100)
    document = json.loads(json.dumps(pod.document))
    document["spec"]["activeDeadlineSeconds"] = 50
    assert pod.update(document)
    pod.sync()
    assert bench.processes.signals == [("TERM", "main")]


def test_eviction(bench: Bench, clock: Clock) -> None:
    pod = bench.pod(pod_document(volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "64Ki"}}]))
    pod.sync()
    bench.processes.comes_up("main")
    pod.sync()
    (pod.folder / "volumes" / "scratch" / "big").write_bytes(b"x" * 200_000)
    clock.passes(11)
    pod.sync()
    bench.processes.ends("main", 143)
    pod.sync()
    assert (bench.last["phase"], bench.last["reason"]) == ("Failed", "Evicted")
    assert 'EmptyDir volume "scratch" exceeds the limit "64Ki"' in bench.last["message"]
    assert any(item["type"] == "DisruptionTarget" for item in bench.last["conditions"])


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


def record(pod: Pod, name: str, **exit_record: Any) -> None:
    """What the shim of an earlier kubelet left on disk."""
    folder = pod.folder / "containers" / name
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(
        json.dumps({"process": {"pid": 12, "started": 1}, "shim": {"pid": 11, "started": 1}, "startedAt": "2026-01-01T00:00:01Z"})
    )
    if exit_record:
        (folder / "exit.json").write_text(
            json.dumps({"startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:02Z", **exit_record})
        )


def recovered(bench: Bench, document: Json, **records: Any) -> Pod:
    pod = bench.pod(document)
    for name, exit_record in records.items():
        record(pod, name, **exit_record)
    pod.recover()
    pod.sync()
    return pod


@pytest.mark.parametrize(
    ("exit_record", "phase", "code", "reason"),
    [
        ({}, "Failed", 137, "ContainerStatusUnknown"),
        ({"exitCode": 0, "runtimeEnded": True}, "Failed", 137, "ContainerStatusUnknown"),
        ({"exitCode": 0}, "Succeeded", 0, "Completed"),
        ({"exitCode": 9}, "Failed", 9, "Error"),
        ({"exitCode": 128, "reason": "StartError", "message": "no such"}, "Failed", 128, "StartError"),
    ],
)
def test_after_a_restart_records_say_how_containers_ended(bench: Bench, exit_record: Json, phase: str, code: int, reason: str) -> None:
    recovered(bench, pod_document(), main=exit_record)
    terminated = bench.state()["terminated"]
    assert (bench.last["phase"], terminated["exitCode"], terminated["reason"]) == (phase, code, reason)
    assert not bench.processes.started


def test_after_a_restart_a_running_pod_without_any_record_has_failed(bench: Bench) -> None:
    running = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    recovered(bench, pod_document(status=running))
    assert (bench.last["phase"], bench.state()["terminated"]["exitCode"]) == ("Failed", 137)


def test_after_a_restart_a_pod_that_had_not_begun_begins(bench: Bench) -> None:
    waiting = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {}}}]}
    recovered(bench, pod_document(status=waiting))
    assert "main" in bench.processes.started


def test_after_a_restart_a_pod_goes_on_after_its_init_containers(bench: Bench) -> None:
    document = pod_document(container(), initContainers=[container("a"), container("b")])
    recovered(bench, document, a={"exitCode": 0})
    assert list(bench.processes.started) == ["b"]


def test_after_a_restart_a_lost_init_container_is_the_end(bench: Bench) -> None:
    recovered(bench, pod_document(container(), initContainers=[container("a")]), a={})
    assert bench.last["phase"] == "Failed"


def test_a_pod_that_has_ended_is_left_as_it_is_until_it_is_deleted(bench: Bench) -> None:
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]}
    pod = recovered(bench, pod_document(status=status))
    assert not bench.reporter.statuses
    assert not pod.main[0].active
    deleted(pod, 30)
    pod.sync()
    assert bench.reporter.deleted == 1


def test_a_status_is_said_again_when_others_have_changed_it(bench: Bench) -> None:
    pod = bench.pod(pod_document())
    pod.sync()
    bench.processes.comes_up("main")
    pod.sync()
    said = len(bench.reporter.statuses)
    pod.tell_again()
    pod.sync()
    assert len(bench.reporter.statuses) == said + 1
    assert bench.last["phase"] == "Running"


def test_retries_are_soon_at_first_and_bounded() -> None:
    waits = [retry_after(count) for count in range(1, 20)]
    assert waits == sorted(waits)
    assert (waits[0] < 0.5, max(waits)) == (True, 10.0)


def test_a_folder_whose_rights_were_taken_away_is_removed(tmp_path: Path) -> None:
    deep = tmp_path / "pod" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    os.chmod(deep, 0)
    os.chmod(deep.parent, 0o500)
    remove_folder(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()
