"""Ports for gangs whose pods share a network (`addressing: host`, `pods.host_network`): a block of the profile's range each.

A block is claimed by an annotation on the chief's Job and verified after its creation: who then sees the same block on another chief's
Job gives way. Both may do so, never neither, whatever the order in which the API server saw them; blocks are drawn at random, so a
second collision is unlikely and a third more so.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import GangError, RefusedError
from trainyard.kube.client import ask
from trainyard.kube.labels import selector
from trainyard.settings.clusters import PortRange


class PortBlocks:
    """The blocks of one cluster."""

    def __init__(self, api: k8s.ApiClient, ports: PortRange, choose: Callable[[list[int]], int] = random.choice) -> None:
        self._batch = k8s.BatchV1Api(api)
        self._ports = ports
        self._choose = choose

    def _claimed(self) -> dict[str, int]:
        """First port by the uid of the chief's Job that has it, in all namespaces."""
        chiefs = selector({names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_ROLE: names.ROLE_CHIEF})
        claimed = {}
        for job in ask(self._batch.list_job_for_all_namespaces, label_selector=chiefs).items:
            text = (job.metadata.annotations or {}).get(names.ANNOTATION_PORTS, "")
            if text.isdigit():
                claimed[job.metadata.uid] = int(text)
        return claimed

    def choose(self, replicas: int) -> int:
        """First port of a block that nobody has.

        Raises:
            RefusedError: the gang has more replicas than a block has ports.
            GangError: all blocks are taken.
        """
        ports = self._ports
        if replicas > ports.block:
            raise RefusedError(f"a gang of {replicas} replicas needs {replicas} ports; a block of this cluster has {ports.block}")
        taken = set(self._claimed().values())
        free = [first for number in range(ports.blocks) if (first := ports.first + number * ports.block) not in taken]
        if not free:
            taken_all = f"all {ports.blocks} blocks of {ports.block} ports ({ports.first}–{ports.last}) are taken"
            raise GangError("NoPorts", taken_all, final=False)
        return self._choose(free)

    def is_mine(self, chief: k8s.V1Job, first: int) -> bool:
        """Whether no other chief's Job claims the block, asked after ours was created."""
        return all(uid == chief.metadata.uid for uid, claimed in self._claimed().items() if claimed == first)
