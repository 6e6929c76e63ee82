"""The state machine's end: deletion, deadlines, eviction."""

from __future__ import annotations

import json

import pytest

from tests.unit.local.kubelet.bench import Bench, Clock, container, deleted
from tests.unit.local.kubelet.conftest import pod_document


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
