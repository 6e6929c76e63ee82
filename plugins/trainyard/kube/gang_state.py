"""What the cluster says of a gang: which replicas run, which are missing and in whose words, which failed and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.contract.exit_codes import describe
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import labels
from trainyard.kube.client import ask
from trainyard.kube.gang_manifests import replicas
from trainyard.kube.pod import CONTAINER

INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
OOM_KILLED: Final = "OOMKilled"


@dataclass(frozen=True)
class PodView:
    """One pod of a gang, as far as the operator cares."""

    name: str
    uid: str
    role: str
    index: int
    phase: str
    """Pending, Running, Succeeded, Failed or Unknown."""
    deleting: bool
    ready: bool
    node: str | None
    started: bool
    """Whether its container runs or ran: only then is there a log."""
    exit_code: int | None
    oom_killed: bool
    message: str | None
    """The container's termination message: its last error line."""
    waits_for: str | None
    """Why it is Pending, in the scheduler's or the kubelet's words."""
    memory_limit: str | None

    @property
    def replica(self) -> str:
        """``worker-1``."""
        return names.replica_name(self.role, self.index)

    @property
    def over(self) -> bool:
        """Whether its containers have ended."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def failure(self) -> str | None:
        """One line on how it failed; None if it did not."""
        if self.phase != "Failed":
            return None
        if self.oom_killed:
            return f"OOM in {self.replica}: it used more than its limit of {self.memory_limit}"
        code = f"exit code {self.exit_code} ({describe(self.exit_code)})" if self.exit_code is not None else "no exit code"
        return f"{self.replica}: {code}" + (f": {self.message}" if self.message else "")


def _waits_for(pod: k8s.V1Pod) -> str | None:
    for status in pod.status.container_statuses or []:
        waiting = status.state.waiting if status.state else None
        if waiting and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting.reason}: {waiting.message or status.image}"
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    return "its container is being created" if pod.spec.node_name else "it is not scheduled yet"


def view(pod: k8s.V1Pod) -> PodView | None:
    """The pod as a replica; None for a pod that is none of a gang's."""
    ours = pod.metadata.labels or {}
    role = ours.get(names.LABEL_ROLE)
    index = ours.get(INDEX_KEY, (pod.metadata.annotations or {}).get(INDEX_KEY))
    if role not in names.ROLES or index is None:
        return None
    status = next((s for s in pod.status.container_statuses or [] if s.name == CONTAINER), None)
    state = status.state if status else None
    ended = state.terminated if state else None
    container = next((c for c in pod.spec.containers if c.name == CONTAINER), None)
    limits = (container.resources.limits if container and container.resources else None) or {}
    message = (ended.message or "").strip().splitlines() if ended else []
    return PodView(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        role=role,
        index=int(index),
        phase=pod.status.phase or "Unknown",
        deleting=pod.metadata.deletion_timestamp is not None,
        ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or []),
        node=pod.spec.node_name,
        started=bool(state and (state.running or state.terminated)),
        exit_code=ended.exit_code if ended else None,
        oom_killed=bool(ended and ended.reason == OOM_KILLED),
        message=message[-1][:500] if message else (pod.status.message or None),
        waits_for=_waits_for(pod) if pod.status.phase == "Pending" else None,
        memory_limit=limits.get("memory"),
    )


def pods(core: k8s.CoreV1Api, namespace: str, run: str, generation: int | None = None) -> list[PodView]:
    """The gang's pods, of one generation or of all.

    Raises:
        UnavailableError: the API server does not answer.
    """
    listed = ask(core.list_namespaced_pod, namespace, label_selector=labels.gang_selector(run, generation)).items
    return [seen for pod in listed if (seen := view(pod)) is not None]


@dataclass(frozen=True)
class JobView:
    """One role's Job."""

    name: str
    role: str
    generation: int
    spec_sha256: str | None
    complete: bool
    failed: str | None
    """Reason and message of its Failed condition."""
    failed_reason: str | None
    deleting: bool

    @property
    def over(self) -> bool:
        """Whether the Job has ended."""
        return self.complete or self.failed is not None


def job_view(job: k8s.V1Job) -> JobView | None:
    """The Job as a role's; None for one that is none of a gang's."""
    ours = job.metadata.labels or {}
    role, generation = ours.get(names.LABEL_ROLE), ours.get(names.LABEL_GENERATION, "")
    if role not in names.ROLES or not generation.isdigit():
        return None
    conditions = {c.type: c for c in job.status.conditions or [] if c.status == "True"}
    # FailureTarget comes before Failed, while pods of the Job still end: the Job's fate is decided with it.
    failed = conditions.get("Failed") or conditions.get("FailureTarget")
    return JobView(
        name=job.metadata.name,
        role=role,
        generation=int(generation),
        spec_sha256=(job.metadata.annotations or {}).get(names.ANNOTATION_SPEC),
        complete="Complete" in conditions or "SuccessCriteriaMet" in conditions,
        failed=f"{failed.reason}: {failed.message}" if failed else None,
        failed_reason=failed.reason if failed else None,
        deleting=job.metadata.deletion_timestamp is not None,
    )


def jobs(batch: k8s.BatchV1Api, namespace: str, run: str, generation: int | None = None) -> dict[str, JobView]:
    """The gang's Jobs by name, of one generation or of all.

    Raises:
        UnavailableError: the API server does not answer.
    """
    listed = ask(batch.list_namespaced_job, namespace, label_selector=labels.gang_selector(run, generation)).items
    return {seen.name: seen for job in listed if (seen := job_view(job)) is not None}


def creation_failures(core: k8s.CoreV1Api, namespace: str, job_names: Iterable[str]) -> dict[str, str]:
    """The last FailedCreate event of each Job: quota refusals of its pods are told nowhere else."""
    found: dict[str, str] = {}
    for name in job_names:
        selector = f"involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate"
        events = ask(core.list_namespaced_event, namespace, field_selector=selector).items
        if events:
            newest = max(events, key=lambda event: str(event.last_timestamp or event.event_time or event.metadata.creation_timestamp))
            found[name] = newest.message
    return found


def missing(spec: RunSpec, seen: Iterable[PodView]) -> dict[str, PodView | None]:
    """Replicas that neither run nor have ended well, by name, with their newest pod if there is one."""
    best: dict[str, PodView] = {}
    for pod in seen:
        if pod.replica not in best or _rank(pod) > _rank(best[pod.replica]):
            best[pod.replica] = pod
    expected = [names.replica_name(role, index) for role, count in replicas(spec).items() for index in range(count)]
    return {name: best.get(name) for name in expected if name not in best or _rank(best[name]) < _RUNS}


_RUNS: Final = 2


def _rank(pod: PodView) -> int:
    if pod.deleting or pod.phase in ("Failed", "Unknown"):
        return 0
    return _RUNS if pod.phase in ("Running", "Succeeded") else 1


def explain_missing(spec: RunSpec, generation: int, absent: Mapping[str, PodView | None], failures: Mapping[str, str]) -> str:
    """Why a gang is not whole: each missing replica by name, with the scheduler's, the kubelet's or the quota's own words."""
    lines = []
    for name, pod in absent.items():
        role = name.rsplit("-", 1)[0]
        if pod is not None and pod.waits_for:
            lines.append(f"{name} (pod {pod.name}): {pod.waits_for}")
        elif pod is not None and pod.failure:
            lines.append(pod.failure)
        elif pod is not None:
            lines.append(f"{name} (pod {pod.name}): is {'being deleted' if pod.deleting else pod.phase}")
        else:
            job = names.job_name(spec.run, generation, role)
            lines.append(f"{name}: no pod" + (f": {failures[job]}" if job in failures else ""))
    return "; ".join(lines)
