"""A pod's resources: its slots × what one slot is worth, requests = limits, for the pod as a whole.

Requests = limits means that what the quota counts is what the pod may use, and that the pod is ``Guaranteed``: the last one that a
node evicts.
"""

from __future__ import annotations

from trainyard.contract.run_spec import SlotSpec
from trainyard.settings.quantities import times_cpu, times_memory


def pod_resources(slot: SlotSpec, slots: int, *, counts_scratch: bool = True, gpus: int = 0, gpu_resource: str = "") -> dict[str, str]:
    """cpu, memory and, where the cluster's nodes report it, ephemeral-storage of a pod of ``slots`` slots, and its GPUs if it has any."""
    found = {"cpu": times_cpu(slot.cpu, slots), "memory": times_memory(slot.memory, slots)}
    if counts_scratch:
        found["ephemeral-storage"] = times_memory(slot.scratch, slots)
    if gpus:
        found[gpu_resource] = str(gpus)
    return found


def scratch(slot: SlotSpec, slots: int) -> str:
    """Size of the working directory of such a pod."""
    return times_memory(slot.scratch, slots)
