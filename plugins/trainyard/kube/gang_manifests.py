"""The objects of one generation of a gang: the chief's Job as their root, and what it owns.

Measured reasons (docs/adr/0002): a suspended root gates nothing, so nothing is suspended; ``maxFailedIndexes: 0``, since an exhausted
index would else leave its Job active for ever; a failed Job ends its own role only, so replicas tell the chief of their failure in S3.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubernetes import client as k8s

from trainyard.contract import environment, names
from trainyard.contract.exit_codes import FINAL, ExitCode
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import labels
from trainyard.kube.pod import CONTAINER, Site, pod_template, trainer_command, trainer_parts
from trainyard.kube.resources import pod_resources

TTL_S: Final = 600
"""Minutes, not seconds: who comes late must be able to tell "finished" from "never made"."""
PEERS_OUTLIVE_S: Final = 120
"""The chief's deadline is the gang's; that of its peers is only there in case the chief's Job is gone and the owner reference with it."""
REPLACEMENTS: Final = 3
"""How often Kubernetes replaces one PS or worker whose pod was lost. A child that crashes is restarted by its supervisor, not here."""

ENDS_ITS_JOB: Final = tuple(sorted({int(code) for code in FINAL} | {int(ExitCode.CHIEF_GONE)}))


@dataclass(frozen=True)
class Addresses:
    """``host:port`` of every replica by role, in the order of their indices."""

    chief: tuple[str, ...]
    ps: tuple[str, ...]
    worker: tuple[str, ...]
    first_port: int | None = None
    """Where pods share ports with others: the first of the gang's block."""
    named: bool = False
    """Whether the hosts are names, which a headless Service must give."""

    def to_json(self, generation: int) -> str:
        """The value of TRAINYARD_GANG."""
        addresses = {names.ROLE_CHIEF: list(self.chief), names.ROLE_PS: list(self.ps), names.ROLE_WORKER: list(self.worker)}
        return json.dumps({"generation": generation, "addresses": addresses}, separators=(",", ":"))

    def port_of(self, role: str) -> int:
        """The port of a role's first replica."""
        first: str = getattr(self, role)[0]
        return int(first.rsplit(":", 1)[1])


def replicas(spec: RunSpec) -> dict[str, int]:
    """How many of each role."""
    return {names.ROLE_CHIEF: 1, names.ROLE_PS: spec.gang.parameter_servers, names.ROLE_WORKER: spec.gang.workers}


def replica_slots(spec: RunSpec) -> dict[str, int]:
    """Slots of one replica of each role."""
    gang = spec.gang
    return {names.ROLE_CHIEF: gang.chief_slots, names.ROLE_PS: gang.ps_slots, names.ROLE_WORKER: gang.worker_slots}


def replica_gpus(spec: RunSpec) -> dict[str, int]:
    """GPUs of one replica of each role: only workers compute gradients."""
    return {names.ROLE_CHIEF: 0, names.ROLE_PS: 0, names.ROLE_WORKER: spec.gang.worker_gpus}


def gang_pods(spec: RunSpec, site: Site) -> list[dict[str, str]]:
    """Resources of each of the gang's pods."""
    slots, gpus = replica_slots(spec), replica_gpus(spec)

    def one(role: str) -> dict[str, str]:
        return pod_resources(spec.slot, slots[role], counts_scratch=site.counts_scratch, gpus=gpus[role], gpu_resource=site.gpu_resource)

    return [one(role) for role, count in replicas(spec).items() for _ in range(count)]


def dns_addresses(spec: RunSpec, generation: int, port: int, *, shared: bool = False) -> Addresses:
    """Names of the headless Service: one port for all, as every pod has an address of its own.

    ``shared``: pods have their nodes' addresses, so each replica has a port of its own, from ``port`` on.
    """
    gang = names.gang_name(spec.run, generation)
    ports = itertools.count(port, 1 if shared else 0)

    def of(role: str) -> tuple[str, ...]:
        return tuple(f"{names.job_name(spec.run, generation, role)}-{index}.{gang}:{next(ports)}" for index in range(replicas(spec)[role]))

    return Addresses(of(names.ROLE_CHIEF), of(names.ROLE_PS), of(names.ROLE_WORKER), port if shared else None, named=True)


def host_addresses(spec: RunSpec, first_port: int) -> Addresses:
    """Ports of one block on 127.0.0.1: chief, then parameter servers, then workers."""
    ports = itertools.count(first_port)
    by_role = {role: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count)) for role, count in replicas(spec).items()}
    return Addresses(by_role[names.ROLE_CHIEF], by_role[names.ROLE_PS], by_role[names.ROLE_WORKER], first_port)


def _failure_policy() -> k8s.V1PodFailurePolicy:
    """What the failure of a PS or a worker means."""
    disrupted = k8s.V1PodFailurePolicyRule(
        # Eviction and preemption are the cluster's doing: the pod is replaced, and it counts as nobody's failure.
        action="Ignore",
        on_pod_conditions=[k8s.V1PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")],
    )
    final = k8s.V1PodFailurePolicyRule(
        action="FailJob",
        on_exit_codes=k8s.V1PodFailurePolicyOnExitCodesRequirement(container_name=CONTAINER, operator="In", values=list(ENDS_ITS_JOB)),
    )
    return k8s.V1PodFailurePolicy(rules=[disrupted, final])


@dataclass(frozen=True)
class GangManifests:
    """Everything of one generation, ready to be created; the chief's Job first."""

    chief: k8s.V1Job
    service: k8s.V1Service | None
    policy: k8s.V1NetworkPolicy
    peers: tuple[k8s.V1Job, ...]

    def owned_by(self, chief: k8s.V1Job) -> GangManifests:
        """The same with the created chief's Job as the owner of all others, so that they cannot outlive it."""
        owner = k8s.V1OwnerReference(api_version="batch/v1", kind="Job", name=chief.metadata.name, uid=chief.metadata.uid)
        for owned in (self.service, self.policy, *self.peers):
            if owned is not None:
                owned.metadata.owner_references = [owner]
        return self


def build(
    spec: RunSpec,
    generation: int,
    addresses: Addresses,
    site: Site,
    *,
    spec_sha256: str,
    command: Mapping[str, Sequence[str]] | None = None,
) -> GangManifests:
    """Compose the gang.

    Args:
        spec: the run's spec; deadlines and sizes come from it.
        generation: number of the generation; part of every name, so that two generations never share one.
        addresses: where each replica listens.
        site: what the cluster profile says of the pods.
        spec_sha256: kept as an annotation: a gang is adopted only by the spec that made it.
        command: by role, in place of the trainer's own (tests of the orchestration need no TensorFlow).
    """
    commands = command or dict.fromkeys(names.ROLES, trainer_command("replica"))

    def job(role: str) -> k8s.V1Job:
        return _job(spec, generation, role, addresses, site, commands[role], spec_sha256)

    service = _service(spec, generation, addresses) if addresses.named else None
    policy = _network_policy(spec, generation, addresses)
    return GangManifests(job(names.ROLE_CHIEF), service, policy, (job(names.ROLE_PS), job(names.ROLE_WORKER)))


def _job(
    spec: RunSpec,
    generation: int,
    role: str,
    addresses: Addresses,
    site: Site,
    command: Sequence[str],
    spec_sha256: str,
) -> k8s.V1Job:
    count = replicas(spec)[role]
    ours = labels.gang_labels(spec, generation, role)
    annotations = labels.run_annotations(spec) | {names.ANNOTATION_SPEC: spec_sha256}
    if addresses.first_port is not None:
        annotations[names.ANNOTATION_PORTS] = str(addresses.first_port)
    parts = trainer_parts(
        spec,
        site,
        command=command,
        slots=replica_slots(spec)[role],
        gpus=replica_gpus(spec)[role],
        labels=ours,
        annotations=labels.run_annotations(spec),
        environment_={environment.ROLE: role, environment.GANG: addresses.to_json(generation)},
        subdomain=names.gang_name(spec.run, generation) if addresses.named else None,
        # By role: all PS on one node would share its one network card, though workers elsewhere made the gang look even.
        spread_by=labels.gang_labels(spec, generation, role),
    )
    job_spec = k8s.V1JobSpec(
        completions=count,
        parallelism=count,
        completion_mode="Indexed",
        ttl_seconds_after_finished=TTL_S,
        template=pod_template(parts),
        pod_replacement_policy="Failed",
    )
    if role == names.ROLE_CHIEF:
        # Any end of the chief is the generation's end: its peers leave with it, so there is nothing that a replacement could lead.
        job_spec.backoff_limit = 0
        job_spec.active_deadline_seconds = spec.training.deadline_s
    else:
        job_spec.pod_failure_policy = _failure_policy()
        job_spec.backoff_limit_per_index = REPLACEMENTS
        job_spec.max_failed_indexes = 0
        job_spec.active_deadline_seconds = spec.training.deadline_s + PEERS_OUTLIVE_S
    name = names.job_name(spec.run, generation, role)
    metadata = k8s.V1ObjectMeta(name=name, labels=site.labels(ours), annotations=site.annotations(annotations))
    return k8s.V1Job(api_version="batch/v1", kind="Job", metadata=metadata, spec=job_spec)


def _service(spec: RunSpec, generation: int, addresses: Addresses) -> k8s.V1Service:
    gang = labels.gang_labels(spec, generation)
    port = addresses.port_of(names.ROLE_CHIEF)
    service = k8s.V1ServiceSpec(
        cluster_ip="None",
        selector={key: gang[key] for key in (names.LABEL_RUN, names.LABEL_GENERATION)},
        # Replicas look for each other before any of them is ready.
        publish_not_ready_addresses=True,
        ports=[k8s.V1ServicePort(name="tensorflow", port=port)],
    )
    return k8s.V1Service(metadata=k8s.V1ObjectMeta(name=names.gang_name(spec.run, generation), labels=gang), spec=service)


def _network_policy(spec: RunSpec, generation: int, addresses: Addresses) -> k8s.V1NetworkPolicy:
    """TensorFlow's servers answer anyone who connects: this is the gang's only wall, and the one door in its namespace's."""
    gang = labels.gang_labels(spec, generation)
    members = k8s.V1LabelSelector(match_labels={key: gang[key] for key in (names.LABEL_RUN, names.LABEL_GENERATION)})
    last = None if addresses.first_port is None else addresses.first_port + sum(replicas(spec).values()) - 1
    ports = [k8s.V1NetworkPolicyPort(protocol="TCP", port=addresses.port_of(names.ROLE_CHIEF), end_port=last)]
    each_other = [k8s.V1NetworkPolicyPeer(pod_selector=members)]
    policy = k8s.V1NetworkPolicySpec(
        pod_selector=members,
        policy_types=["Ingress", "Egress"],
        ingress=[k8s.V1NetworkPolicyIngressRule(_from=each_other, ports=ports)],
        egress=[k8s.V1NetworkPolicyEgressRule(to=each_other, ports=ports)],
    )
    return k8s.V1NetworkPolicy(metadata=k8s.V1ObjectMeta(name=names.gang_name(spec.run, generation), labels=gang), spec=policy)
