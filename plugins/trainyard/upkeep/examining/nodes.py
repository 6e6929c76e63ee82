"""What the Node objects say: whether they count scratch space, and whether any of them is large enough for one pod of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from trainyard.contract.run_spec import SlotSpec
from trainyard.kube.client import ask
from trainyard.kube.quota import display
from trainyard.kube.resources import pod_resources
from trainyard.settings import Settings
from trainyard.upkeep.examining.finding import Finding, absent, doubtful, well, wrong
from trainyard.upkeep.examining.patient import Patient

SCRATCH = "ephemeral-storage"


def scratch(patient: Patient) -> Iterator[Finding]:
    """``counts_scratch`` against what the nodes that may take our pods report."""
    profile, file = patient.settings.cluster, patient.profile_file
    nodes = _ours(patient)
    if not nodes:
        selector = ", ".join(f"{key}={value}" for key, value in profile.pods.node_selector.items())
        yield wrong(
            f"no node of the cluster has the labels {selector}" if selector else "the cluster has no node", f"{file}: pods.node_selector"
        )
        return
    silent = sorted(node.metadata.name for node in nodes if not parse_quantity((node.status.allocatable or {}).get(SCRATCH, "0")))
    patient.counts_scratch = len(silent) < len(nodes)
    if profile.counts_scratch and silent:
        every = "no node reports" if len(silent) == len(nodes) else f"{', '.join(silent)} report no"
        yield wrong(f"{every} {SCRATCH}, and pods ask for it: they would never be placed there", f"{file}: counts_scratch: false")
    elif not profile.counts_scratch and not silent:
        todo = f"{file}: counts_scratch: true, then `trainyard sync`: quotas and the scheduler count it from then on"
        yield doubtful(f"every node reports {SCRATCH}, and the profile does not count it: a pod may fill its node's disk", todo)
    else:
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        yield well(f"{count}; scratch is {'' if profile.counts_scratch else 'not '}counted, as reported")


def size(patient: Patient) -> Iterator[Finding]:
    """Each tenant's largest pod against the largest node: in an empty cluster, so what runs now does not matter."""
    nodes = _ours(patient)
    problems, largest = [], ""
    for name, slots, tenant in _largest_pods(patient.settings):
        counts = patient.settings.cluster.counts_scratch and patient.counts_scratch is not False
        slot = SlotSpec(**patient.settings.tenants[tenant].slot.model_dump())
        wanted = pod_resources(slot, slots, counts_scratch=counts)
        if not any(_fits(wanted, node.status.allocatable or {}) for node in nodes):
            words = ", ".join(f"{resource} {amount}" for resource, amount in wanted.items())
            problems.append(f"a pod of pipeline {name} ({slots} slots: {words})")
        largest = name
    if not largest:
        yield absent("there are no pipelines")
    elif problems:
        best = ", ".join(
            f"{resource} {display(resource, max(parse_quantity((node.status.allocatable or {}).get(resource, '0')) for node in nodes))}"
            for resource in ("cpu", "memory")
        )
        yield wrong(
            f"no node is large enough for {'; '.join(problems)}; the most that one offers is {best}", "fewer slots a pod, or larger nodes"
        )
    else:
        yield well("each pipeline's largest pod fits on a node that is empty")


def _ours(patient: Patient) -> list[Any]:
    selector = ",".join(f"{key}={value}" for key, value in sorted(patient.settings.cluster.pods.node_selector.items()))
    found: list[Any] = ask(patient.core.list_node, label_selector=selector).items
    return found


def _largest_pods(settings: Settings) -> Iterator[tuple[str, int, str]]:
    for name, pipeline in sorted(settings.pipelines.items()):
        gang = pipeline.gang
        yield name, max(gang.chief_slots, gang.ps_slots, gang.worker_slots, pipeline.step_slots), pipeline.tenant


def _fits(wanted: Mapping[str, str], allocatable: Mapping[str, str]) -> bool:
    return all(parse_quantity(amount) <= parse_quantity(allocatable.get(resource, "0")) for resource, amount in wanted.items())
