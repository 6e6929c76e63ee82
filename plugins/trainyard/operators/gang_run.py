"""One training, from whatever is found to a good result or one typed error: result → live gang → half a gang → new generation.

No Airflow here: :class:`trainyard.operators.training_gang.TrainingGang` gives it the run and turns its errors into Airflow's.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client as k8s

from trainyard.contract import keys, names
from trainyard.errors import GangError, NotFoundError, UnavailableError
from trainyard.kube.gang_state import JobView, PodView
from trainyard.kube.log_stream import GangLogs
from trainyard.kube.takedown import abandon_pod
from trainyard.operators import gang_verdict
from trainyard.operators.gang_cluster import GangCluster, GangLeft
from trainyard.operators.gang_creation import GangCreation
from trainyard.operators.generations import Generations, Result
from trainyard.store import Store

STEP = "train"


@dataclass(frozen=True)
class GangOutcome:
    """A training that ended well."""

    generation: int
    checkpoint_step: int | None
    loss: float | None


@dataclass
class _Watch:
    """What the follower has seen of one generation."""

    number: int = 0
    record: gang_verdict.FailureRecord = field(default_factory=gang_verdict.FailureRecord)
    uids: dict[str, str] = field(default_factory=dict)
    """Replica → uid of its pod, to notice replacements."""
    not_ready_since: dict[str, float] = field(default_factory=dict)
    """Pod's uid → when it was first seen Running and not Ready."""
    chief_over_at: float | None = None
    peer_failed_at: float | None = None
    silent_since: float | None = None


class GangRun:
    """Runs one gang for one try of the task."""

    def __init__(self, cluster: GangCluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._spec = cluster.spec
        self._generations = Generations(store, cluster.spec.run)
        self._creation = GangCreation(cluster, self._generations, self._check_stop, self._notice)
        self._watch = _Watch()
        # A plain attribute, set in a signal handler: an Event's lock may be held by the very code that the signal interrupted.
        self.stop = False

    def _check_stop(self) -> None:
        if self.stop:
            raise GangLeft(f"told to stop: the gang of {self._spec.run}, if there is one, goes on without this task")

    # ------------------------------------------------------------------------------------------------------------------ all
    def run(self) -> GangOutcome:
        """Train, or find out that it was done.

        Raises:
            GangError: it ended badly; nothing of it is left in the cluster.
            GangLeft: :attr:`stop` was set; the gang is left as it is.
            UnavailableError: S3 or the API server did not answer for longer than a gang is left alone.
        """
        done = self._marked()
        if done is not None:
            self._cluster.log(f"trained before, to step {done.checkpoint_step}: nothing to do")
            return done
        adopted = self._adopt()
        number, logs = adopted or self._creation.begin()
        self._watch.number = number
        try:
            if adopted and self._generations.result(number) is None:
                self._await_whole(number, logs)
            return self._follow(logs)
        finally:
            logs.close()

    def _adopt(self) -> tuple[int, GangLogs] | None:
        """The live gang of our spec, with its logs; None when there is none, and then nothing of an old one is left either."""
        current = self._generations.current()
        if current is not None:
            number = current.number
            jobs = self._cluster.jobs(number)
            result = self._generations.result(number)
            whole = self._is_whole(number, jobs) and current.spec_sha256 == self._cluster.spec_sha256
            if whole or (result is not None and not self._is_told(number, result)):
                pods = len(self._cluster.pods(number))
                self._cluster.log(f"generation {number}: adopted ({pods} pods; {'ended' if result else 'running'})")
                return number, GangLogs(k8s.CoreV1Api(self._cluster.api), self._cluster.namespace, adopted=True)
        if self._cluster.jobs() or self._cluster.pods():
            self._cluster.log("what is left of an earlier gang is no whole gang of this run: taking it down")
            self._cluster.take_down()
        return None

    def _is_told(self, number: int, result: Result) -> bool:
        """A bad end that an earlier try has reported: whoever asks again wants another attempt."""
        return not result.good and self._generations.is_reported(number)

    def _is_whole(self, number: int, jobs: dict[str, JobView]) -> bool:
        by_role = {job.role: job for job in jobs.values()}
        chief = by_role.get(names.ROLE_CHIEF)
        if chief is None or chief.deleting or chief.spec_sha256 != self._cluster.spec_sha256:
            return False
        if chief.over:
            return not (result := self._generations.result(number)) or not self._is_told(number, result)
        return all(role in by_role and not by_role[role].deleting for role in names.ROLES)

    # --------------------------------------------------------------------------------------------------------------- follow
    def _await_whole(self, number: int, logs: GangLogs) -> None:
        try:
            self._creation.await_whole(number, logs)
        except GangError:
            self._cluster.take_down(number)
            raise

    def _follow(self, logs: GangLogs) -> GangOutcome:
        watch = self._watch
        result: Result | None = None
        while True:
            self._check_stop()
            for line in logs.lines(self._cluster.timing.poll):
                self._cluster.log(line)
            try:
                ended, result = self._look(watch, logs)
            except UnavailableError as error:
                self._bear(watch, error)
                continue
            watch.silent_since = None
            if ended:
                break
        return self._end_well(watch, result, logs) if result is not None and result.good else self._end_badly(watch, result, logs)

    def _look(self, watch: _Watch, logs: GangLogs) -> tuple[bool, Result | None]:
        """One look at S3 and the cluster; True when the generation has ended or must end."""
        # The result first: a chief that is seen to be over without one may have written it in between, which the next look finds.
        result = self._generations.result(watch.number)
        pods, jobs = self._cluster.pods(watch.number), self._cluster.jobs(watch.number)
        logs.observe(pods)
        self._notice(pods)
        if result is not None:
            return True, result
        timing, now = self._cluster.timing, time.monotonic()
        if gang_verdict.out_of_memory(watch.record, timing.oom_kills) is not None:
            return True, None
        chief = next((job for job in jobs.values() if job.role == names.ROLE_CHIEF), None)
        if chief is None or chief.over or chief.deleting:
            watch.chief_over_at = watch.chief_over_at or now
        if any(job.failed for job in jobs.values() if job.role != names.ROLE_CHIEF):
            watch.peer_failed_at = watch.peer_failed_at or now
        over = watch.chief_over_at is not None and now - watch.chief_over_at > timing.result_after_chief
        failed = watch.peer_failed_at is not None and now - watch.peer_failed_at > timing.result_after_peer
        self._free_lost_nodes(watch, pods)
        return over or failed, None

    def _notice(self, pods: list[PodView]) -> None:
        watch = self._watch
        for pod in watch.record.note(pods):
            self._cluster.log(f"{pod.failure} (pod {pod.name})")
        for pod in pods:
            before = watch.uids.get(pod.replica)
            if before is not None and before != pod.uid and not pod.over:
                self._cluster.log(f"{pod.replica} was replaced: pod {pod.name} on {pod.node or 'no node yet'}")
            if not pod.over and not pod.deleting:
                watch.uids[pod.replica] = pod.uid

    def _free_lost_nodes(self, watch: _Watch, pods: list[PodView]) -> None:
        """A pod on a dead node stays Running for ever, and its Job waits for it."""
        now = time.monotonic()
        for pod in pods:
            if pod.phase != "Running" or pod.ready:
                watch.not_ready_since.pop(pod.uid, None)
                continue
            since = watch.not_ready_since.setdefault(pod.uid, now)
            if now - since > self._cluster.timing.lost_node:
                words = f"node {pod.node} does not answer"
                self._cluster.log(f"{pod.replica}: {words}: giving up pod {pod.name}")
                abandon_pod(k8s.CoreV1Api(self._cluster.api), pod.name, self._cluster.namespace, words)
                watch.not_ready_since[pod.uid] = now  # not again at once, should it come to nothing

    def _bear(self, watch: _Watch, error: UnavailableError) -> None:
        now = time.monotonic()
        if watch.silent_since is None:
            watch.silent_since = now
            self._cluster.log(f"{error}: the gang goes on meanwhile")
        if now - watch.silent_since > self._cluster.timing.silence:
            raise error

    # ------------------------------------------------------------------------------------------------------------------ end
    def _end_well(self, watch: _Watch, result: Result, logs: GangLogs) -> GangOutcome:
        seen = time.monotonic()
        while any(not pod.over for pod in self._cluster.pods(watch.number)):
            if time.monotonic() - seen > self._cluster.timing.peers_end:
                self._cluster.log("some replicas did not end by themselves: ending them")
                break
            for line in logs.lines(0.2):
                self._cluster.log(line)
        self._drain(watch, logs)
        self._cluster.take_down(watch.number)
        self._cluster.log(
            f"trained to step {result.checkpoint_step}; nothing of the gang left {time.monotonic() - seen:.1f} s after its end"
        )
        self._mark(result)
        return GangOutcome(watch.number, result.checkpoint_step, result.loss)

    def _end_badly(self, watch: _Watch, result: Result | None, logs: GangLogs) -> GangOutcome:
        if result is not None:
            error = gang_verdict.of_result(result, watch.record)
        else:
            told = self._generations.failures(watch.number)
            error = gang_verdict.of_cluster(self._spec, watch.number, self._cluster.jobs(watch.number), watch.record, told)
        self._cluster.log(f"generation {watch.number} ended: {error}")
        self._cluster.take_down(watch.number)
        self._drain(watch, logs)
        if result is not None:
            self._generations.report(watch.number)
        raise error

    def _drain(self, watch: _Watch, logs: GangLogs) -> None:
        logs.observe(self._cluster.pods(watch.number))
        for line in logs.drain(self._cluster.timing.drain):
            self._cluster.log(line)

    # --------------------------------------------------------------------------------------------------------------- marker
    def _inputs(self) -> str:
        """SHA-256 over what training reads: the spec and the plan, which names every shard by its own SHA-256."""
        try:
            plan = self._store.get(keys.plan(self._spec.run))
        except NotFoundError:
            plan = b""
        return hashlib.sha256(self._cluster.spec_sha256.encode() + plan).hexdigest()

    def _marked(self) -> GangOutcome | None:
        marker: Any = self._store.get_json(keys.step_marker(self._spec.run, STEP))
        if not isinstance(marker, dict) or marker.get("inputs") != self._inputs():
            return None
        values = marker.get("values", {})
        return GangOutcome(int(values.get("generation", 0)), values.get("checkpoint_step"), values.get("loss"))

    def _mark(self, result: Result) -> None:
        current = self._generations.current()
        values = {
            "checkpoint_step": result.checkpoint_step,
            "loss": result.loss,
            "generation": current.number if current else 0,
        }
        marker = {
            "version": 1,
            "step": STEP,
            "inputs": self._inputs(),
            "files": [],
            "values": values,
            "ended": datetime.datetime.now(datetime.UTC).isoformat(),
        }
        self._store.put_json(keys.step_marker(self._spec.run, STEP), marker)
