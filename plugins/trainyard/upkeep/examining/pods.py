"""Whether a pod of ours finds a node, whether the nodes get its images, and whether there is in them what a run needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainyard.errors import RefusedError
from trainyard.kube.client import ask
from trainyard.upkeep.examining.finding import Finding, doubtful, well, wrong
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.examining.probes import Probe

SCHEDULE_S: Final = 60.0
"""A scheduler decides in milliseconds; a cluster that adds nodes when they are wanted needs minutes, and says so."""
PULL_S: Final = 600.0
"""For half a gigabyte on a slow line."""
REFUSED_S: Final = 20.0
"""An image that could not be got may come at the second try (after 10 s): so long it is given the benefit of the doubt."""
MODULES: Final = {"trainer": ("trainer", "tensorflow", "boto3"), "airflow": ("trainyard", "kubernetes", "boto3")}
"""What the images must have: those of steps and replicas, and those of ``clean_up``."""
NEVER: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
NOT_YET: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"})
NOT_STARTED: Final = frozenset({"CreateContainerError", "CreateContainerConfigError", "RunContainerError"})


def scheduling(patient: Patient) -> Iterator[Finding]:
    """A pod of each image, as the profile has them: admitted, and placed on a node."""
    probes, images = patient.probes, patient.settings.cluster.images
    for name, image in (("trainer", images.trainer), ("airflow", images.airflow)):
        try:
            patient.pods[name] = probes.start(name, "facts", *MODULES[name], image=image, counts_scratch=patient.counts_scratch)
        except RefusedError as error:
            yield wrong(
                str(error), f"{patient.profile_file}: section pods (priority_class_name, host_network), or a policy of the cluster's"
            )
            return
    placed: list[Probe] = []
    for probe in patient.pods.values():
        if probes.wait(probe, lambda seen: bool(seen.node), SCHEDULE_S):
            placed.append(probe)
            continue
        yield _unplaced(patient, probe)
        return
    nodes = sorted({str(probe.node) for probe in placed})
    yield well(f"two pods found their place: {', '.join(nodes)}")


def _unplaced(patient: Patient, probe: Probe) -> Finding:
    pods, file = patient.settings.cluster.pods, patient.profile_file
    if not probe.refusal:
        scheduler = pods.scheduler_name or "default-scheduler"
        todo = f"{file}: pods.scheduler_name" if pods.scheduler_name else "does the cluster's scheduler run?"
        return wrong(f"no scheduler has looked at a pod for {SCHEDULE_S:.0f} s (it waits for {scheduler})", todo)
    words = probe.refusal
    if "affinity/selector" in words or "node selector" in words:
        todo = f"{file}: pods.node_selector {pods.node_selector}: no node has these labels (kubectl get nodes --show-labels)"
    elif "taint" in words:
        todo = f"{file}: pods.tolerations: the nodes have {_taints(patient)}"
    elif "ephemeral-storage" in words:
        todo = f"{file}: counts_scratch: false, where nodes report none"
    elif "Insufficient" in words:
        todo = "the nodes are full: make room, or try again where the cluster adds nodes by itself"
    else:
        todo = f"{file}: section pods; kubectl describe nodes"
    return wrong(f"a pod found no node in {SCHEDULE_S:.0f} s: {words}", todo)


def _taints(patient: Patient) -> str:
    """The scheduler says only that there are taints, not which."""
    nodes = ask(patient.core.list_node).items
    found = {f"{t.key}{'=' + t.value if t.value else ''}:{t.effect}" for node in nodes for t in node.spec.taints or []}
    return ", ".join(sorted(found)) or "none now"


def trainer_image(patient: Patient) -> Iterator[Finding]:
    """The image of steps and replicas."""
    yield from _image(patient, "trainer", patient.settings.cluster.images.trainer)


def airflow_image(patient: Patient) -> Iterator[Finding]:
    """The image of the platform's own pods."""
    yield from _image(patient, "airflow", patient.settings.cluster.images.airflow)


def _image(patient: Patient, name: str, image: str) -> Iterator[Finding]:
    probes, probe = patient.probes, patient.pods[name]
    words = ""
    refused_at: float | None = None

    def decided(seen: Probe) -> bool:
        nonlocal words, refused_at
        reason, message = seen.waits
        if reason in NEVER or reason in NOT_STARTED:
            words = f"{reason}: {message}"
            return True
        if reason in NOT_YET:
            refused_at = refused_at or patient.now()
            # The first try's words say why; the later ones only that it waits.
            words = f"{reason}: {message}" if reason == "ErrImagePull" or not words else words
            return patient.now() - refused_at > REFUSED_S
        words, refused_at = "", None
        return seen.over

    if not probes.wait(probe, decided, PULL_S):
        yield wrong(
            f"{image} has not started on node {probe.node} in {PULL_S:.0f} s: {words or 'no word why'}", "is it still being pulled?"
        )
        return
    if words:
        yield wrong(f"node {probe.node} cannot run {image}: {words}", _way_out(patient, name, words))
        return
    if probe.phase == "Failed":
        yield wrong(f"{image} ran and failed: {probe.end}", "does it have python3, and is it built for this kind of processor?")
        return
    facts = probes.hear(probe, ("facts",), 10.0)
    if facts is None:
        yield wrong(f"{image} ran on node {probe.node} and its log is empty", "can the API server read logs there? (kubectl logs)")
        return
    probe.facts = facts
    lacking = [module for module, found in facts["modules"].items() if not found]
    if MODULES[name][0] in lacking:
        todo = f"{patient.profile_file}: images.{name} is no image of Trainyard's: `trainyard images build --push`, or one made FROM it"
        yield wrong(f"{image} runs, and has no module {', '.join(lacking)}", todo)
    elif lacking:
        yield doubtful(f"{image} runs, and lacks {', '.join(lacking)}", "build it anew: docs/guides/images.md")
    else:
        took = probe.heard_at - probe.created_at
        yield well(f"{image} runs on node {probe.node} (Python {facts['python']}; {took:.1f} s from its creation to its end)")


def _way_out(patient: Patient, name: str, words: str) -> str:
    file, low = patient.profile_file, words.lower()
    if any(word in low for word in ("unauthorized", "denied", "authentication", "403 forbidden", "401")):
        return f"{file}: image_pull_secrets: the registry wants to know who asks"
    if any(word in low for word in ("not found", "manifest unknown", "no such image", "not present", "no image")):
        return f"{file}: images.{name}: push it (`trainyard images build --push`), or correct name and tag"
    if "x509" in low or "certificate" in low or "http response to https" in low:
        return "the nodes' container runtime must know the registry's certificate, or that it is plain http"
    if any(word in low for word in ("no such host", "refused", "timeout", "dial tcp", "unreachable")):
        return f"{file}: images.{name}: is this the registry's address as the nodes see it, and does it run?"
    return f"{file}: images.{name}, image_pull_policy, image_pull_secrets"
