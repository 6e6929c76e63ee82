"""One pod from the moment it is bound to this node until it is gone: a state machine that `sync` moves on.

`sync` is called by one thread at a time, whenever something changed (the API object, a container, a timer) and decides again from what is
there; nothing in it waits. Starting one container is start.py, the shape of the status is status.py.
Source of the order of things: kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle.
"""

import calendar
import contextlib
import json
import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from local.kubelet import unsupported
from local.kubelet.api import Json
from local.kubelet.container import Container
from local.kubelet.shim import utc_seconds, write_json
from local.kubelet.sources import SourceError
from local.kubelet.start import NotStarted, Starter
from local.kubelet.status import Verdict, pod_status
from local.kubelet.volumes import Volumes

log = logging.getLogger(__name__)

MIN_GRACE_S = 1.0
"""Between TERM and KILL, even where the API says 0: as a kubelet has it."""
EVICTION_CHECK_S = 10.0
_AGAIN_SOON_S = 0.05


class Reporter(Protocol):
    """Where a pod's news go: the status writer and the event recorder (writer.py, events.py)."""

    def status(self, pod: Json, status: Json) -> None:
        """Write the status, now or as soon as the API can be reached."""

    def delete(self, pod: Json) -> None:
        """Remove the object once its last status is written."""

    def event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        """Record an event; `kind` is Normal or Warning."""


@dataclass
class Stop:
    """The pod is to end."""

    kill_at: float
    """Monotonic seconds."""
    verdict: Verdict
    killed: bool = False


class Pod:
    """One pod. Only `update`, `remove` and the log reader's look-ups are called from other threads than the one in `sync`."""

    def __init__(self, document: Json, folder: Path, starter: Starter, reporter: Reporter, volumes: Volumes) -> None:
        self.document = document
        self.folder = folder
        self._starter = starter
        self._reporter = reporter
        self._volumes = volumes
        self.removed = False
        self.finished = False
        """Nothing of it runs, and nothing more will be started."""
        self._stop: Stop | None = None
        self._verdict = Verdict()
        self._prepared = False
        self._prepare_failures, self._prepare_at = 0, 0.0
        self._evict_at = 0.0
        self._published: Json = document.get("status") or {}
        """The status as last handed to the reporter."""
        self._start_time: str = (document.get("status") or {}).get("startTime") or utc_seconds(time.time())
        spec = document["spec"]
        waiting = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
        self.init = [self._container(item, True, waiting) for item in spec.get("initContainers") or []]
        self.main = [self._container(item, False, waiting) for item in spec["containers"]]

    def _container(self, spec: Json, init: bool, waiting: str) -> Container:
        return Container(spec, init, self.folder / "containers" / spec["name"], waiting)

    @property
    def uid(self) -> str:
        """What names it: a name may be given again."""
        return str(self.document["metadata"]["uid"])

    @property
    def containers(self) -> list[Container]:
        """Init containers first."""
        return [*self.init, *self.main]

    @property
    def gone(self) -> bool:
        """Whether nothing of it is left, here or in the API."""
        return self.removed and self.finished

    def is_named(self, namespace: str, name: str) -> bool:
        """Whether this is its name; an older pod that is still ending may have it too."""
        metadata = self.document["metadata"]
        return bool(metadata["namespace"] == namespace and metadata["name"] == name)

    def __str__(self) -> str:
        return f"{self.document['metadata']['namespace']}/{self.document['metadata']['name']}"

    # ---- news from outside

    def update(self, document: Json) -> bool:
        """Take a newer object. True where something in it makes a difference here."""
        before, self.document = self.document, document
        return _what_matters(before) != _what_matters(document)

    def remove(self, document: Json | None = None) -> None:
        """The object is gone from the API (by force, or because this kubelet deleted it)."""
        if document is not None:
            self.document = document
        self.removed = True

    def tell_again(self) -> None:
        """Have the status written anew at the next sync, since others have changed it."""
        if not self.finished:
            self._published = {**self._published, "containerStatuses": None}

    # ---- after a restart of the kubelet

    def recover(self) -> None:
        """Decide what became of a pod that an earlier kubelet had, or that has ended already."""
        if (self.document.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            self.finished = True
            self._show_as_api_has_it()
            return
        started = [container for container in self.containers if container.recover()]
        for container in self.main:
            if container not in started and _had_started(self.document, container.name):
                container.recover_without_record()
                started.append(container)
        if all(container.shown.init and container.shown.exit_code == 0 for container in started):
            return  # nothing was lost: it starts, or goes on after its init containers
        self._end(Verdict())
        self._reporter.event(
            self.document, "Warning", "KubeletRestarted", "the kubelet that ran this pod ended, and the pod's containers with it"
        )

    def _show_as_api_has_it(self) -> None:
        status = self.document["status"]
        shown = {item["name"]: item for item in [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]}
        for container in self.containers:
            if item := shown.get(container.name):
                container.shown.state = item["state"]

    # ---- the state machine

    def sync(self) -> float | None:
        """Move on as far as possible now. Returns seconds until it must be called again even if nothing happens, or None."""
        now = time.monotonic()
        for container in self.containers:
            if container.collect():
                self._tell_state(container)
        if not self.finished:
            self._look_for_reasons_to_stop(now)
            if self._stop is not None:
                self._drive_stop(self._stop, now)
            else:
                self._drive_start(now)
        if not self.removed:
            self._publish()
            if self.finished and self.document["metadata"].get("deletionTimestamp"):
                self._reporter.delete(self.document)
        elif self.finished:
            remove_folder(self.folder)
            return None
        return None if self.finished else self._next_time(time.monotonic())

    def _tell_state(self, container: Container) -> None:
        terminated = container.shown.state.get("terminated")
        if terminated is None:
            self._reporter.event(self.document, "Normal", "Started", f"Started container {container.name}")
        elif terminated["reason"] in ("StartError", "OOMKilled"):
            self._reporter.event(
                self.document,
                "Warning",
                terminated["reason"],
                f"container {container.name}: {terminated.get('message', terminated['reason'])}",
            )

    def _publish(self) -> None:
        if self._published.get("phase") in ("Succeeded", "Failed"):
            return  # a phase that is final stays
        shown = [container.shown for container in self.containers]
        status = pod_status(
            shown, self._verdict, self.finished, self._start_time, self._published, utc_seconds(time.time()), self._prepared
        )
        if generation := self.document["metadata"].get("generation"):
            status["observedGeneration"] = generation
        if status != self._published:
            self._published = status
            self._reporter.status(self.document, status)

    # ---- starting

    def _drive_start(self, now: float) -> None:
        if not self._prepared and (refused := unsupported.refusals(self.document)):
            self._refuse(unsupported.message(refused))
            return
        if not self._prepare(now):
            return
        self._renew(now)
        for container in self.init:
            if not container.started:
                self._try_start(container, now)
            if container.shown.exit_code is None:
                return
            if container.shown.exit_code != 0:
                self._end(Verdict())
                return
        for container in self.main:
            if not container.started:
                self._try_start(container, now)
        if all(container.shown.exit_code is not None for container in self.main):
            self._end(Verdict())

    def _refuse(self, message: str) -> None:
        for container in self.containers:
            container.wait(unsupported.REASON, message)
        if unsupported.waits_instead_of_failing(self.document):
            self._verdict = Verdict(reason=unsupported.REASON, message=message)
        else:
            self._end(Verdict("Failed", unsupported.REASON, message))
        self._reporter.event(self.document, "Warning", unsupported.REASON, message)

    def _prepare(self, now: float) -> bool:
        """Make the folder and the volumes. False where something is missing yet."""
        if self._prepared:
            return True
        if now < self._prepare_at:
            return False
        metadata = self.document["metadata"]
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(self.folder / "pod.json", {key: metadata[key] for key in ("namespace", "name", "uid")})
            self._volumes.make()
        except (SourceError, OSError) as problem:
            self._prepare_failures += 1
            self._prepare_at = now + retry_after(self._prepare_failures)
            self._wait_all(str(problem))
            if self._prepare_failures > 1:  # the first refusal is often the Node authorizer, which hears of a pod later than the kubelet
                self._reporter.event(self.document, "Warning", "FailedMount", str(problem))
            return False
        self._wait_all("")
        self._prepared = True
        return True

    def _wait_all(self, message: str) -> None:
        """Show why the containers that have not started wait, or that it is only a matter of time."""
        for container in self.containers:
            if not container.started:
                container.wait(container.shown.state["waiting"]["reason"], message)

    def _try_start(self, container: Container, now: float) -> None:
        if now < container.retry_at:
            return
        try:
            self._starter.start(self.document, container, self._volumes)
        except NotStarted as problem:
            container.failures += 1
            container.retry_at = now + (problem.retry_s or retry_after(container.failures))
            container.wait(problem.reason, str(problem))
            if container.failures > 1 or problem.certain:
                self._reporter.event(self.document, "Warning", problem.event, f"container {container.name}: {problem}")

    # ---- stopping

    def _look_for_reasons_to_stop(self, now: float) -> None:
        metadata, spec = self.document["metadata"], self.document["spec"]
        usual_grace = float(spec.get("terminationGracePeriodSeconds", 30))
        if self.removed or metadata.get("deletionTimestamp"):
            asked = metadata.get("deletionGracePeriodSeconds")
            grace = 0.0 if self.removed else usual_grace if asked is None else float(asked)
            self._stop_within(now, grace, Verdict())
        elif self._stop is None and (seconds := spec.get("activeDeadlineSeconds")) and time.time() >= _epoch(self._start_time) + seconds:
            message = "Pod was active on the node longer than the specified deadline"
            self._stop_within(now, usual_grace, Verdict("Failed", "DeadlineExceeded", message))
            self._reporter.event(self.document, "Normal", "DeadlineExceeded", message)
        elif self._stop is None and self._prepared and self._volumes.limited() and now >= self._evict_at:
            self._evict_at = now + EVICTION_CHECK_S
            if over := self._volumes.over_limit():
                message = f'Usage of EmptyDir volume "{over[0]}" exceeds the limit "{over[1]}". '
                disruption = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
                self._stop_within(now, MIN_GRACE_S, Verdict("Failed", "Evicted", message, [disruption]))
                self._reporter.event(self.document, "Warning", "Evicted", message)

    def _stop_within(self, now: float, grace_s: float, verdict: Verdict) -> None:
        """Begin to stop, or shorten a stop under way: a grace period may become shorter, never longer."""
        kill_at = now + max(grace_s, MIN_GRACE_S)
        if self._stop is None:
            self._stop = Stop(kill_at, verdict)
            log.info("pod %s: stopping within %.0f s (%s)", self, max(grace_s, MIN_GRACE_S), verdict.reason or "deleted")
            for container in self.containers:
                if container.active and container.process is not None:
                    self._reporter.event(self.document, "Normal", "Killing", f"Stopping container {container.name}")
                    self._starter.processes.terminate(container.process)
        else:
            self._stop.kill_at = min(self._stop.kill_at, kill_at)

    def _drive_stop(self, stop: Stop, now: float) -> None:
        active = [container.process for container in self.containers if container.active and container.process is not None]
        if not active:
            verdict = stop.verdict
            if verdict.phase is None and not all(container.started for container in self.containers):
                verdict = Verdict("Failed")
            self._end(verdict)
        elif now >= stop.kill_at and not stop.killed:
            stop.killed = True
            for process in active:
                self._starter.processes.kill(process)

    def _end(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.finished = True
        states = {container.name: container.shown.exit_code for container in self.containers}
        log.info("pod %s: ended, exit codes %s %s", self, json.dumps(states), verdict.reason)

    # ---- time

    def _next_time(self, now: float) -> float | None:
        """Seconds until the next timer of this pod."""
        times: list[float] = []
        if self._stop is not None:
            if not self._stop.killed:
                times.append(self._stop.kill_at)
        else:
            if not self._prepared:
                times.append(self._prepare_at)
            elif self._volumes.limited():
                times.append(self._evict_at)
            startable = self.init + self.main if self._prepared else []
            times += [container.retry_at for container in startable if not container.started and container.retry_at > 0]
            if seconds := self.document["spec"].get("activeDeadlineSeconds"):
                times.append(now + _epoch(self._start_time) + seconds - time.time())
            if (due := self._volumes.next_renewal()) is not None:
                times.append(due)
        return max(_AGAIN_SOON_S, min(times) - now) if times else None

    def _renew(self, now: float) -> None:
        try:
            self._volumes.renew_tokens(now)
        except SourceError as problem:
            log.warning("pod %s: %s; the present token stays valid for a while", self, problem)


def retry_after(failures: int) -> float:
    """Seconds until the next try after so many failures: soon at first, then every 10 s."""
    return (0.3, 0.7, 1.0, 2.0, 5.0, 10.0)[min(failures, 6) - 1]


def _what_matters(document: Json) -> tuple[Any, ...]:
    metadata, spec = document["metadata"], document["spec"]
    return metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds"), spec.get("activeDeadlineSeconds")


def _had_started(document: Json, container: str) -> bool:
    statuses = (document.get("status") or {}).get("containerStatuses") or []
    return any(item["name"] == container and "waiting" not in (item.get("state") or {"waiting": {}}) for item in statuses)


def _epoch(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


def remove_folder(folder: Path) -> None:
    """Remove a pod's folder, also where a container took away the rights to its own files."""

    def allow_and_retry(function: Any, path: str, _: Any) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            Path(path).chmod(0o700)
            function(path)

    shutil.rmtree(folder, onerror=allow_and_retry)
    if folder.exists():  # a folder that could not be listed before has been opened by now
        shutil.rmtree(folder, ignore_errors=True)
