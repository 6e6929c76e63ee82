"""How a gang comes to be: room for all of it, a new generation, the chief's Job as the root, and every replica running, or nothing.

One gang of a tenant at a time is in here (a Lease): two that both saw the same free room would get half of it each, and wait for the
other's half for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import ConflictError, GangError
from trainyard.kube import gang_manifests, gang_state, quota
from trainyard.kube.client import ask
from trainyard.kube.gang_manifests import Addresses, GangManifests
from trainyard.kube.lease import ClusterLock
from trainyard.kube.log_stream import GangLogs
from trainyard.kube.patience import Patience
from trainyard.kube.ports import PortBlocks
from trainyard.operators.gang_cluster import GangCluster, GangLeft
from trainyard.operators.generations import Generations

SAY_AGAIN_S = 60.0
"""A wait that goes on says so once a minute."""
PORT_TRIES = 8


def create_with_patience(create: Callable[..., object], read: Callable[..., object], name: str, namespace: str, body: object) -> object:
    """Create one object; again when the API server was too busy to count the quota; as it is when an earlier answer was lost.

    Raises:
        kubernetes.client.ApiException: any other refusal.
    """
    busy = Patience(seconds=60)
    while True:
        try:
            return ask(create, namespace, body)
        except k8s.ApiException as error:
            if quota.is_already_exists(error):
                # Names hold run and generation, and a generation is one operator's: this is our own request, whose answer was lost.
                return ask(read, name, namespace)
            if not quota.is_quota_conflict(error) or not busy.wait():
                raise


class GangCreation:
    """Brings one gang into being, or leaves nothing."""

    def __init__(
        self,
        cluster: GangCluster,
        generations: Generations,
        check_stop: Callable[[], None],
        notice: Callable[[list[gang_state.PodView]], None] = lambda pods: None,
    ) -> None:
        self._notice = notice
        self._cluster = cluster
        self._generations = generations
        self._check_stop = check_stop
        self._spec = cluster.spec
        self._batch = k8s.BatchV1Api(cluster.api)
        self._core = k8s.CoreV1Api(cluster.api)
        self._networking = k8s.NetworkingV1Api(cluster.api)

    def begin(self) -> tuple[int, GangLogs]:
        """Wait for room, take a generation, create everything and wait until all of it runs.

        Raises:
            GangError: no room (``NoRoom``), or not whole by the start deadline (``StartDeadline``), with the reasons; nothing is left.
        """
        wanted = quota.demand(gang_manifests.gang_pods(self._spec, self._cluster.site))
        with self._cluster.start_lock() as lock:
            self._wait_for_room(lock, wanted)
            try:
                number = self._generations.take(self._cluster.spec_sha256)
            except ConflictError as error:
                raise GangError("Superseded", f"another operator began a generation of this run: {error}", final=False) from error
            self._cluster.log(f"generation {number}: creating {self._spec.gang.slots} slots of pods in {self._cluster.namespace}")
            logs = GangLogs(self._core, self._cluster.namespace, adopted=False)
            try:
                self._create(number)
                self.await_whole(number, logs, lock)
            except GangLeft:
                logs.close()
                raise
            except Exception:
                logs.close()
                self._cluster.take_down(number)
                raise
        return number, logs

    # ----------------------------------------------------------------------------------------------------------------- room
    def _wait_for_room(self, lock: ClusterLock, wanted: dict[str, Decimal]) -> None:
        ends, said, said_at = time.monotonic() + self._cluster.timing.room, "", 0.0
        while True:
            self._check_stop()
            if not lock.try_acquire():
                reason = f"another gang of this tenant is being created ({lock.other})"
            else:
                short = quota.room_for(self._core, self._cluster.namespace, wanted)
                if not short:
                    return
                lock.release()
                reason = "; ".join(map(str, short))
                if any(s.never for s in short):
                    raise GangError("NoRoom", f"the gang does not fit into the empty namespace either: {reason}", final=True)
            now = time.monotonic()
            if now >= ends:
                raise GangError("NoRoom", f"no room for the whole gang in {self._cluster.timing.room:.0f} s: {reason}", final=False)
            if reason != said or now - said_at > SAY_AGAIN_S:
                self._cluster.log(f"waiting, nothing is created yet: {reason}")
                said, said_at = reason, now
            time.sleep(min(2.0, max(0.05, ends - now)))

    # ------------------------------------------------------------------------------------------------------------- creation
    def _create(self, number: int) -> None:
        manifests, chief = self._create_chief(number)
        owned = manifests.owned_by(chief)
        namespace = self._cluster.namespace
        if owned.service is not None:
            create, read = self._core.create_namespaced_service, self._core.read_namespaced_service
            create_with_patience(create, read, owned.service.metadata.name, namespace, owned.service)
        create, read = self._networking.create_namespaced_network_policy, self._networking.read_namespaced_network_policy
        create_with_patience(create, read, owned.policy.metadata.name, namespace, owned.policy)
        for peer in owned.peers:
            self._create_job(peer)

    def _create_job(self, job: k8s.V1Job) -> k8s.V1Job:
        create, read = self._batch.create_namespaced_job, self._batch.read_namespaced_job
        return create_with_patience(create, read, job.metadata.name, self._cluster.namespace, job)

    def _manifests(self, number: int, addresses: Addresses) -> GangManifests:
        cluster = self._cluster
        return gang_manifests.build(self._spec, number, addresses, cluster.site, spec_sha256=cluster.spec_sha256, command=cluster.command)

    def _create_chief(self, number: int) -> tuple[GangManifests, k8s.V1Job]:
        profile = self._cluster.profile
        if profile.ports is None:
            assert profile.port is not None  # the profile's own check
            manifests = self._manifests(number, gang_manifests.dns_addresses(self._spec, number, profile.port))
            return manifests, self._create_job(manifests.chief)
        blocks = PortBlocks(self._cluster.api, profile.ports)
        for _ in range(PORT_TRIES):
            first = blocks.choose(sum(gang_manifests.replicas(self._spec).values()))
            if profile.addressing == "dns":
                addresses = gang_manifests.dns_addresses(self._spec, number, first, shared=True)
            else:
                addresses = gang_manifests.host_addresses(self._spec, first)
            manifests = self._manifests(number, addresses)
            chief = self._create_job(manifests.chief)
            if blocks.is_mine(chief, first):
                return manifests, chief
            self._cluster.log(f"ports from {first} were claimed by another gang at the same moment: giving way")
            self._cluster.take_down(number)
        raise GangError("NoPorts", f"no block of ports could be claimed in {PORT_TRIES} tries", final=False)

    # ---------------------------------------------------------------------------------------------------------------- start
    def await_whole(self, number: int, logs: GangLogs, lock: ClusterLock | None = None) -> None:
        """Wait until every replica runs (or the gang has ended already); its logs are shown meanwhile.

        ``lock`` is given up as soon as all pods exist: from then on the quota counts them.

        Raises:
            GangError: ``StartDeadline``, naming each missing replica with the reason.
        """
        began = time.monotonic()
        deadline = self._spec.training.start_deadline_s
        chief = names.job_name(self._spec.run, number, names.ROLE_CHIEF)
        said, said_at = "", began
        while True:
            self._check_stop()
            pods = self._cluster.pods(number)
            logs.observe(pods)
            self._notice(pods)
            for line in logs.lines(self._cluster.timing.start_poll):
                self._cluster.log(line)
            absent = gang_state.missing(self._spec, pods)
            waited = time.monotonic() - began
            if not absent:
                self._cluster.log(f"generation {number}: all {len(pods)} replicas run, {waited:.1f} s after their creation")
                return
            job = self._cluster.jobs(number).get(chief)
            if job is None or job.over:
                return  # ended before it was whole: how, is for the follower to find out
            if lock is not None and not self._hold(lock, absent):
                lock = None
            if waited > deadline:
                why = self._cluster.why_missing(number, absent)
                raise GangError("StartDeadline", f"not whole {deadline} s after its creation; missing: {why}", final=False)
            if waited > 5 and time.monotonic() - said_at > (5 if not said else SAY_AGAIN_S):
                why = self._cluster.why_missing(number, absent)
                self._cluster.log(f"waiting for {len(absent)} of the replicas: {why}")
                said, said_at = why, time.monotonic()

    @staticmethod
    def _hold(lock: ClusterLock, absent: dict[str, gang_state.PodView | None]) -> bool:
        """Keep the lock while pods are missing altogether; give it up when all exist."""
        if any(pod is None for pod in absent.values()):
            lock.renew()
            return True
        lock.release()
        return False
