"""One run's gang in the cluster: the calls that its operator makes, and the patience with which it makes them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import gang_state
from trainyard.kube.lease import ClusterLock
from trainyard.kube.pod import Site
from trainyard.kube.takedown import Takedown
from trainyard.settings.clusters import ClusterProfile

Log = Callable[[str], None]

START_LOCK = "gang-start"
"""Name of the Lease in the tenant's namespace: one gang at a time has its pods created."""


class GangLeft(Exception):
    """The task was told to stop: the gang goes on, and the next try adopts it (or ``clean_up`` ends it)."""


@dataclass(frozen=True)
class Timing:
    """How long the operator waits for what, in seconds. Deadlines of a run are in its spec; these are the platform's own."""

    poll: float = 1.0
    """Between two looks at the cluster while the gang trains."""
    start_poll: float = 0.4
    """The same while it starts."""
    room: float = 6 * 3600.0
    """For room in the quota. The pool lets one in only when its slots are free, so this is short but after a kill, or a mistake."""
    result_after_chief: float = 6.0
    """From the end of the chief's Job to its result in S3; the supervisor writes it before it ends."""
    result_after_peer: float = 15.0
    """From the failure of a PS or worker Job: the chief's supervisor sees the failure in S3, ends its child and writes the result."""
    peers_end: float = 5.0
    """From the result to the end of the peers, who see it by themselves within two seconds."""
    drain: float = 10.0
    """For the last lines of the live logs."""
    silence: float = 300.0
    """Of S3 or the API server in mid-training: the gang goes on without us."""
    lost_node: float = 30.0
    """A pod that is Running but not Ready for so long is on a node that is gone."""
    oom_kills: int = 2
    """Of one replica, after which more memory is the only way: it is not started a third time."""


@dataclass(frozen=True)
class GangCluster:
    """The cluster as one gang's operator sees it."""

    api: k8s.ApiClient
    profile: ClusterProfile
    spec: RunSpec
    spec_sha256: str
    log: Log
    timing: Timing = field(default_factory=Timing)
    command: Mapping[str, Sequence[str]] | None = None
    """By role, in place of the trainer's own command (tests need no TensorFlow)."""

    @property
    def namespace(self) -> str:
        return names.namespace(self.spec.tenant)

    @property
    def site(self) -> Site:
        return Site.of(self.profile, self.spec.image)

    def pods(self, generation: int | None = None) -> list[gang_state.PodView]:
        """The gang's pods, of one generation or of all."""
        return gang_state.pods(k8s.CoreV1Api(self.api), self.namespace, self.spec.run, generation)

    def jobs(self, generation: int | None = None) -> dict[str, gang_state.JobView]:
        """The gang's Jobs by name."""
        return gang_state.jobs(k8s.BatchV1Api(self.api), self.namespace, self.spec.run, generation)

    def why_missing(self, generation: int, absent: Mapping[str, gang_state.PodView | None]) -> str:
        """Each missing replica, in the words of who refuses it."""
        wanted = {names.job_name(self.spec.run, generation, replica.rsplit("-", 1)[0]) for replica in absent}
        failures = gang_state.creation_failures(k8s.CoreV1Api(self.api), self.namespace, wanted)
        return gang_state.explain_missing(self.spec, generation, absent, failures)

    def start_lock(self) -> ClusterLock:
        """The lock under which a gang of this tenant is created."""
        holder = f"{self.spec.run}/{socket.gethostname()}/{os.getpid()}"
        return ClusterLock(self.api, self.namespace, START_LOCK, holder)

    def take_down(self, generation: int | None = None) -> float:
        """Remove the gang, of one generation or whatever is there; returns the seconds it took until nothing was left."""
        return Takedown(self.api, self.namespace, self.log).remove(self.spec.run, generation)
