"""A pod that an earlier kubelet left, and what stays of one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from local.kubelet.api import Json
from local.kubelet.pod import Pod, remove_folder, retry_after
from tests.unit.local.kubelet.bench import Bench, container, deleted
from tests.unit.local.kubelet.conftest import pod_document


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
