"""From a registry's and a scheduler's words to the way out; and how long a pull that went wrong is waited for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.unit.plugins.trainyard.upkeep.examining.conftest import on
from trainyard.settings import Settings
from trainyard.settings.site_pods import SitePods
from trainyard.upkeep.examining import pods, probes
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.examining.probes import Probe


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ('ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "r/t:1": r/t:1: not found', "push it"),
        ("ErrImagePull: pull access denied, repository does not exist or may require authorization", "image_pull_secrets"),
        ("ErrImagePull: failed to authorize: 401 Unauthorized", "image_pull_secrets"),
        ("ErrImagePull: tls: failed to verify certificate: x509: certificate signed by unknown authority", "container runtime must know"),
        ("ErrImagePull: http: server gave HTTP response to HTTPS client", "plain http"),
        ("ErrImagePull: dial tcp: lookup registry.example: no such host", "the registry's address as the nodes see it"),
        ("ErrImagePull: dial tcp 10.0.0.9:5000: connect: connection refused", "the registry's address as the nodes see it"),
        ("InvalidImageName: couldn't parse image name", "images.trainer, image_pull_policy"),
    ],
)
def test_the_way_out_of_a_pull_that_went_wrong(patient: Patient, words: str, way_out: str) -> None:
    assert way_out in pods._way_out(patient, "trainer", words)


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "pods.node_selector {'disk': 'fast'}"),
        ("0/3 nodes are available: 3 Insufficient cpu.", "the nodes are full"),
        ("0/3 nodes are available: 3 Insufficient ephemeral-storage.", "counts_scratch: false"),
        ("0/3 nodes are available: 3 node(s) were unschedulable.", "kubectl describe nodes"),
        ("", "does the cluster's scheduler run?"),
    ],
)
def test_the_way_out_of_a_pod_that_found_no_node(settings: Settings, words: str, way_out: str) -> None:
    patient = Patient(on(settings, pods=SitePods(node_selector={"disk": "fast"})))
    finding = pods._unplaced(patient, Probe("p", pod(conditions=[("PodScheduled", "False", words)] if words else []), 0.0))
    assert (finding.state, way_out in finding.todo, words in finding.saw) == ("failed", True, True), finding


def pod(*, waiting: tuple[str, str] | None = None, phase: str = "Pending", conditions: Any = (), code: int | None = None) -> k8s.V1Pod:
    state = k8s.V1ContainerState(waiting=k8s.V1ContainerStateWaiting(reason=waiting[0], message=waiting[1])) if waiting else None
    if code is not None:
        state = k8s.V1ContainerState(terminated=k8s.V1ContainerStateTerminated(exit_code=code, reason="Error", message="one\nno such file"))
    statuses = [k8s.V1ContainerStatus(name="main", image="i", image_id="", ready=False, restart_count=0, state=state)] if state else None
    said = [k8s.V1PodCondition(type=kind, status=status, message=message) for kind, status, message in conditions]
    status = k8s.V1PodStatus(phase=phase, container_statuses=statuses, conditions=said)
    spec = k8s.V1PodSpec(containers=[k8s.V1Container(name="main")], node_name="a-node")
    return k8s.V1Pod(metadata=k8s.V1ObjectMeta(name="trainer"), spec=spec, status=status)


@pytest.fixture
def clock(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that passes only when somebody waits: a second each."""
    seconds = itertools.count()
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] = float(next(seconds))

    monkeypatch.setattr(probes.time, "sleep", sleep)
    monkeypatch.setattr(probes.time, "monotonic", lambda: now[0])
    patient.now = lambda: now[0]
    return now


def seen(patient: Patient, monkeypatch: pytest.MonkeyPatch, *states: k8s.V1Pod) -> Any:
    """Let the trainer's pod be in these states, the last of them for good; the finding on its image."""
    patient.pods["trainer"] = probe = Probe("trainer", states[0], 0.0)
    coming = iter(states)

    def look(_: Probe) -> Probe:
        probe.pod = next(coming, states[-1])
        return probe

    monkeypatch.setattr(patient.probes, "look", look)
    (finding,) = pods.trainer_image(patient)
    return finding


def test_the_first_words_of_a_pull_are_kept_and_it_is_given_a_second_try(
    patient: Patient, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, then = pod(waiting=("ErrImagePull", "r/t:1: not found")), pod(waiting=("ImagePullBackOff", "Back-off pulling image"))
    finding = seen(patient, monkeypatch, pod(), first, then)
    assert finding.saw == "node a-node cannot run localhost/trainyard/trainer:dev: ErrImagePull: r/t:1: not found"
    assert pods.REFUSED_S < clock[0] < pods.REFUSED_S + 5


def test_a_pull_that_works_at_the_second_try_is_well(patient: Patient, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"step": "facts", "now": 0, "python": "3.11.2", "modules": {"trainer": True}}
    monkeypatch.setattr(patient.probes, "said", lambda probe: [facts])
    finding = seen(patient, monkeypatch, pod(waiting=("ErrImagePull", "i/o timeout")), pod(), pod(phase="Succeeded", code=0))
    assert finding.state == "ok", finding


def test_a_container_that_cannot_start_is_not_waited_for(patient: Patient, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    finding = seen(patient, monkeypatch, pod(waiting=("CreateContainerError", "exec: python3: not found")))
    assert (finding.state, "CreateContainerError" in finding.saw, clock[0] < 5) == ("failed", True, True)


def test_a_pull_without_a_word_ends_too(patient: Patient, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    finding = seen(patient, monkeypatch, pod(waiting=("ContainerCreating", "")))
    assert (finding.state, "has not started on node a-node in 600 s" in finding.saw) == ("failed", True)


def test_an_image_that_fails_says_how(patient: Patient, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    finding = seen(patient, monkeypatch, pod(phase="Failed", code=127))
    assert finding.saw == "localhost/trainyard/trainer:dev ran and failed: Error (exit code 127): no such file"
