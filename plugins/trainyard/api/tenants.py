"""The tenants at a glance: slots, GPUs, gangs, what waits and for what, and where file, Airflow and cluster do not say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from trainyard.api import slot_records
from trainyard.api.slot_records import PoolView, Task
from trainyard.contract import names
from trainyard.errors import ConfigError, RefusedError, UnavailableError
from trainyard.kube.quota import display
from trainyard.kube.tenant_usage import Usage, slots_used, usage
from trainyard.settings import Settings, Tenant
from trainyard.upkeep.objects import QUOTA, resource_quota

GANG = "train"


def overview(settings: Settings, tenant: Tenant) -> dict[str, Any]:
    """One tenant, as Airflow and the cluster have it now."""
    pool = slot_records.pool(tenant.name, datetime.now(UTC))
    seen, silence = _ask_cluster(settings, tenant)
    return describe(settings, tenant, pool, seen, silence)


def _ask_cluster(settings: Settings, tenant: Tenant) -> tuple[Usage | None, str | None]:
    from trainyard.kube.client import client

    try:
        with client(settings.cluster.kubeconfig) as api:
            return usage(api, tenant.name, QUOTA), None
    except (ConfigError, RefusedError, UnavailableError) as error:
        return None, str(error).splitlines()[0]


def describe(settings: Settings, tenant: Tenant, pool: PoolView, seen: Usage | None, silence: str | None = None) -> dict[str, Any]:
    """The document of one tenant. ``seen`` is None where the cluster gave no answer; ``silence`` says why."""
    drained = tenant.state == "draining" and not pool.unfinished_runs
    slots = 0 if drained else tenant.slots
    holding = [task for task in pool.tasks if task.state != "scheduled"]
    used = sum(task.slots for task in holding)
    gpu = f"requests.{settings.cluster.gpu_resource}"
    wanted = resource_quota(
        tenant, counts_scratch=settings.cluster.counts_scratch, gpu_resource=settings.cluster.gpu_resource, closed=drained
    )["spec"]["hard"]
    return {
        "tenant": tenant.name,
        "state": "drained" if drained else tenant.state,
        "slots": slots,
        "used": used,
        "free": max(0, slots - used),
        "gpus": tenant.gpus,
        "gpus_used": int(parse_quantity(seen.used.get(gpu, "0"))) if seen else None,
        "gangs": [{"run": _run(task), "dag_id": task.dag_id, "slots": task.slots} for task in holding if task.step == GANG],
        "waiting": _waiting(pool, slots - used, seen),
        "quota": {"hard": dict(seen.hard), "used": dict(seen.used)} if seen and seen.hard else None,
        "quota_text": _quota_text(seen),
        "slot_hours": pool.slot_hours,
        "disagreements": list(_disagreements(tenant, pool, slots, used, wanted, seen, silence)),
    }


def _run(task: Task) -> str:
    return names.run_name(task.dag_id.split("_", 2)[2], task.dag_id, task.run_id)


def _waiting(pool: PoolView, free: int, seen: Usage | None) -> list[dict[str, Any]]:
    def entry(task: Task, reason: str) -> dict[str, Any]:
        return {"run": _run(task), "step": task.step, "slots": task.slots, "for": reason}

    found = []
    for task in pool.tasks:
        if task.state == "scheduled":
            reason = f"{task.slots} slots, {max(0, free)} free" if task.slots > free else "a worker of Airflow's"
            found.append(entry(task, reason))
        elif task.step == GANG and task.state == "running" and seen is not None and not seen.pods.get(_run(task)):
            found.append(entry(task, "room in the quota for all its pods"))
    return found + [entry(task, "its turn: a gang of the tenant waits for slots") for task in pool.waiting_for_turn]


def _quota_text(seen: Usage | None) -> str | None:
    if seen is None or not seen.hard:
        return None
    parts = []
    for resource, word in (("pods", "pods"), ("limits.cpu", "cpu"), ("limits.memory", "memory")):
        if resource in seen.hard:
            used, hard = (parse_quantity(side.get(resource, "0")) for side in (seen.used, seen.hard))
            parts.append(f"{word} {display(resource, used)}/{display(resource, hard)}")
    return ", ".join(parts)


def _disagreements(
    tenant: Tenant, pool: PoolView, slots: int, used: int, wanted: Mapping[str, str], seen: Usage | None, silence: str | None
) -> Iterator[str]:
    way_out = "`trainyard sync`"
    if pool.slots is None:
        yield f"Airflow has no pool {names.pool(tenant.name)}: {way_out}"
    elif pool.slots != slots:
        yield f"Airflow's pool has {pool.slots} slots, the file says {slots}: {way_out}"
    if seen is None:
        yield f"the cluster was not asked: {silence}"
        return
    if not seen.hard:
        yield f"the cluster has no quota for it: {way_out}"
        return
    differs = [
        f"{resource} {seen.hard.get(resource, 'nothing')} (file: {amount})"
        for resource, amount in wanted.items()
        if resource not in seen.hard or parse_quantity(seen.hard[resource]) != parse_quantity(amount)
    ]
    if differs:
        yield f"the cluster's quota is not the file's: {', '.join(differs)}: {way_out}"
    held = slots_used(seen.used, tenant.slot.cpu)
    if held > used:
        held_text = display("slots", held)
        yield f"the cluster holds {held_text} slots of pods, Airflow knows of {used}: pods of a run that was ended are still there"
