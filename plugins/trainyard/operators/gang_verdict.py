"""From what is seen of a gang's end to one typed error: which replica, how, and whether trying again makes sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainyard.contract import names
from trainyard.contract.exit_codes import ExitCode, describe, is_final
from trainyard.contract.run_spec import RunSpec
from trainyard.errors import GangError
from trainyard.kube.gang_state import JobView, PodView
from trainyard.operators.generations import Result

OUT_OF_MEMORY = "OutOfMemory"
DEADLINE = "Deadline"
LOST = "Lost"
REPLICA_FAILED = "ReplicaFailed"

CONSEQUENCES = frozenset({ExitCode.CHIEF_GONE, ExitCode.PEER_FAILED, ExitCode.TERMINATED})
"""Exit codes of replicas that ended since another one did: never the cause."""


@dataclass
class FailureRecord:
    """Every failed pod that was seen of a generation: Kubernetes forgets a pod when it replaces it or takes it down."""

    by_uid: dict[str, PodView] = field(default_factory=dict)

    def note(self, pods: Iterable[PodView]) -> list[PodView]:
        """Remember; returns those not seen failed before."""
        new = [pod for pod in pods if pod.phase == "Failed" and pod.uid not in self.by_uid]
        self.by_uid.update({pod.uid: pod for pod in new})
        return new

    def causes(self) -> list[PodView]:
        """Failures that are no mere consequence of another's."""
        return [pod for pod in self.by_uid.values() if pod.oom_killed or pod.exit_code not in CONSEQUENCES]

    def oom_kills(self) -> dict[str, list[PodView]]:
        """Pods killed for memory, by replica."""
        found: dict[str, list[PodView]] = {}
        for pod in self.by_uid.values():
            if pod.oom_killed:
                found.setdefault(pod.replica, []).append(pod)
        return found


def out_of_memory(record: FailureRecord, least: int) -> GangError | None:
    """The error for a replica that was killed for memory ``least`` times; None if none was."""
    for pods in record.oom_kills().values():
        if len(pods) >= least:
            times = "" if len(pods) == 1 else f", {len(pods)} times"
            way_out = "give its role more slots, or the model less to hold"
            return GangError(OUT_OF_MEMORY, f"{pods[-1].failure}{times}: {way_out}", final=True)
    return None


def of_result(result: Result, record: FailureRecord) -> GangError:
    """The error for a result that says how the gang failed."""
    memory = out_of_memory(record, 1)
    if memory is not None:
        return memory
    text = result.message or f"exit code {result.exit_code}"
    return GangError(result.reason, text, final=is_final(result.exit_code))


def of_cluster(spec: RunSpec, generation: int, jobs: Mapping[str, JobView], record: FailureRecord, told: Mapping[str, str]) -> GangError:
    """The error for a gang that ended, or must end, without a result.

    Args:
        spec: the run's spec.
        generation: the generation that ended.
        jobs: its Jobs as last seen.
        record: its failed pods.
        told: what replicas wrote of their own failure.
    """
    memory = out_of_memory(record, 1)
    if memory is not None:
        return memory
    by_role = {job.role: job for job in jobs.values()}
    chief = by_role.get(names.ROLE_CHIEF)
    if chief is not None and chief.failed_reason == "DeadlineExceeded":
        text = f"not done {spec.training.deadline_s} s after its start (training.deadline_s): the last checkpoint is kept"
        return GangError(DEADLINE, text, final=True)
    causes = record.causes()
    if told:
        # Replicas write only of failures that another try would repeat.
        return GangError(_reason(causes), "; ".join(f"{replica}: {words}" for replica, words in sorted(told.items())), final=True)
    if causes:
        text = "; ".join(dict.fromkeys(pod.failure or pod.replica for pod in causes))
        return GangError(_reason(causes), text, final=any(is_final(pod.exit_code or 0) for pod in causes))
    failed = "; ".join(f"{job.role}: {job.failed}" for job in by_role.values() if job.failed)
    gone = "the chief's Job is gone" if chief is None else "the chief ended without a result"
    return GangError(LOST, f"generation {generation}: {gone}{'; ' + failed if failed else ''}: its pod or node was lost", final=False)


def _reason(causes: list[PodView]) -> str:
    codes = {pod.exit_code for pod in causes}
    if len(codes) > 1 or not codes:
        return REPLICA_FAILED
    code = codes.pop()
    # No exit code at all: the pod was given up with its node.
    return LOST if code is None or code == ExitCode.KILLED else describe(code)
