"""Carrying out an order: logs are saved, then all of a stray run goes, if nothing of it is newer than the order.

Runs in a pod of the platform with the identity *upkeep*. A run that cannot be dealt with does not keep the others from it.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kubernetes import client as k8s

from trainyard.contract import environment, keys, names
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.kube import labels
from trainyard.kube.client import ask
from trainyard.kube.gang_state import INDEX_KEY
from trainyard.kube.patience import Patience
from trainyard.kube.pod import CONTAINER
from trainyard.kube.takedown import Takedown
from trainyard.store import Store
from trainyard.upkeep.reaping.order import Order, StrayRun
from trainyard.upkeep.reaping.seen import roots

LOG_BYTES: Final = 10 * 2**20
"""As much as a kubelet keeps of a container's log."""
LOG_PATIENCE_S: Final = 5.0
"""A node that is away gives no log, and its pods must go all the same."""

Stores = Callable[[str], Store]
"""Tenant → its data bucket, with an identity that may write ``runs/``."""


@dataclass
class Report:
    """What was done, or in a dry run would be."""

    dry_run: bool
    removed: Counter[str] = field(default_factory=Counter)
    """Runs of which everything went, by reason: ``no run``, ``run deleted``, ``run ended``."""
    logs_saved: int = 0
    left: Counter[str] = field(default_factory=Counter)
    """Runs that were left alone after all, by reason."""
    uploads_ended: int = 0
    failed: list[str] = field(default_factory=list)
    """What could not be done, one line each."""

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        parts = [f"{verb} {sum(self.removed.values())} runs' objects" + _by_reason(self.removed)]
        parts.append(f"left {sum(self.left.values())}" + _by_reason(self.left))
        parts.append(f"saved {self.logs_saved} logs, {'would end' if self.dry_run else 'ended'} {self.uploads_ended} incomplete uploads")
        return "; ".join(parts) + (f"; {len(self.failed)} FAILED" if self.failed else "")


def _by_reason(counts: Counter[str]) -> str:
    return f" ({', '.join(f'{reason}: {count}' for reason, count in sorted(counts.items()))})" if counts else ""


@dataclass
class Reaper:
    """One order with what it takes to carry it out."""

    api: k8s.ApiClient
    stores: Stores
    order: Order
    log: Callable[[str], None] = print

    def carry_out(self) -> Report:
        """Do all of it; what fails is in the report, and is tried again by the next round's order."""
        report = Report(self.order.dry_run)
        for stray in self.order.strays:
            try:
                self._reap(stray, report)
            except (TrainyardError, k8s.ApiException) as error:
                report.failed.append(f"run {stray.run} of tenant {stray.tenant}: {error}")
        if self.order.uploads_after_s is not None:
            for tenant in self.order.buckets:
                try:
                    self._end_uploads(tenant, datetime.timedelta(seconds=self.order.uploads_after_s), report)
                except TrainyardError as error:
                    report.failed.append(f"uploads of tenant {tenant}: {error}")
        return report

    def _reap(self, stray: StrayRun, report: Report) -> None:
        selector = labels.instance_selector(self.order.instance, stray.run)
        found = roots(self.api, stray.tenant, selector)
        if not found:
            report.left["gone by itself"] += 1
            return
        newer = [f"{root.kind} {root.name}" for root in found if root.uid not in stray.roots]
        if newer:
            self.log(f"run {stray.run}: left alone: {', '.join(newer)} came after Airflow was asked")
            report.left["changed since"] += 1
            return
        store = self.stores(stray.tenant)
        reason = _reason(store, stray)
        what = ", ".join(sorted(stray.roots.values()))
        self.log(f"run {stray.run} of tenant {stray.tenant}: {reason}: {stray.said}: {what}")
        if not self.order.dry_run:
            report.logs_saved += self._save_logs(store, stray, selector)
            took = Takedown(self.api, names.namespace(stray.tenant), self.log).remove_matching(selector)
            self.log(f"run {stray.run}: nothing left after {took:.1f} s")
        report.removed[reason] += 1

    def _save_logs(self, store: Store, stray: StrayRun, selector: str) -> int:
        core, namespace = k8s.CoreV1Api(self.api), names.namespace(stray.tenant)
        saved = 0
        for pod in ask(core.list_namespaced_pod, namespace, label_selector=selector).items:
            if not _began(pod):
                continue
            folder = _attempt(stray.run, pod)
            if _is_whole(store, stray.run, pod):
                continue
            try:
                text = ask(
                    core.read_namespaced_pod_log,
                    pod.metadata.name,
                    namespace,
                    container=CONTAINER,
                    limit_bytes=LOG_BYTES,
                    _preload_content=False,
                    patience=Patience(seconds=LOG_PATIENCE_S),
                ).data
            except (UnavailableError, k8s.ApiException) as error:
                self.log(f"run {stray.run}: the log of pod {pod.metadata.name} cannot be had: {str(error).splitlines()[0]}")
                continue
            store.put(f"{folder}{0:08d}.log", text)
            store.put_json(f"{folder}end.json", {"exit_code": None, "chunks": 1, "bytes": len(text), "reaped": True})
            saved += 1
        return saved

    def _end_uploads(self, tenant: str, age: datetime.timedelta, report: Report) -> None:
        count = self.stores(tenant).abort_uploads(keys.RUNS, older_than=age, dry_run=self.order.dry_run)
        if count:
            self.log(f"tenant {tenant}: {count} incomplete uploads are older than {age}")
        report.uploads_ended += count


def _reason(store: Store, stray: StrayRun) -> str:
    if stray.reason == "ended":
        return "run ended"
    return "run deleted" if store.exists(keys.spec(stray.run)) else "no run"


def _began(pod: Any) -> bool:
    return any(status.state and (status.state.running or status.state.terminated) for status in pod.status.container_statuses or [])


def _replica(pod: Any) -> str:
    ours = pod.metadata.labels or {}
    role, index = ours.get(names.LABEL_ROLE), ours.get(INDEX_KEY)
    if role and index is not None:
        return names.replica_name(role, int(index))
    told = {variable.name: variable.value for variable in pod.spec.containers[0].env or []}
    return told.get(environment.REPLICA) or ours.get(names.LABEL_STEP) or pod.metadata.name


def _attempt(run: str, pod: Any) -> str:
    """As the supervisor names an attempt's folder, with a word of ours at its end."""
    started = pod.status.start_time or pod.metadata.creation_timestamp
    return f"{keys.logs(run, _replica(pod))}{started:%Y%m%dT%H%M%SZ}-{pod.metadata.name}-reaped/"


def _is_whole(store: Store, run: str, pod: Any) -> bool:
    """Whether the pod's own supervisor has shipped its log to the end (or an earlier round has)."""
    folder = keys.logs(run, _replica(pod))
    ours = [attempt for attempt in store.list_folders(folder) if attempt.removesuffix("-reaped").endswith(f"-{pod.metadata.name}")]
    return any(store.exists(f"{folder}{attempt}/end.json") for attempt in ours)
