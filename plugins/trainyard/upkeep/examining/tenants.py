"""Whether the cluster and S3 are what the tenants' files say, and whether each tenant's quota has room for its largest gang."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.contract import names
from trainyard.contract.run_spec import SlotSpec
from trainyard.errors import TrainyardError
from trainyard.kube import quota
from trainyard.kube.client import ask
from trainyard.kube.resources import pod_resources
from trainyard.settings import ClusterProfile, Pipeline, Tenant
from trainyard.upkeep.examining.finding import Finding, absent, well, wrong
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.sync import sync_cluster

MOST_CHANGES = 6


def synced(patient: Patient) -> Iterator[Finding]:
    """A sync in a dry run: namespaces, quotas, roles, buckets, identities, and the Secrets with their keys, each tried on S3."""
    if not patient.settings.tenants:
        yield absent("there are no tenants")
        return
    try:
        changes = sync_cluster(patient.settings, dry_run=True)
    except TrainyardError as error:
        yield wrong(str(error), "`trainyard sync` would fail in the same way")
        return
    given = [change for change in changes if change.action == "missing"]
    ours = [change for change in changes if change.action != "missing"]
    if ours:
        words = "; ".join(f"{change.action} {change.what}" for change in ours[:MOST_CHANGES])
        more = f" and {len(ours) - MOST_CHANGES} more" if len(ours) > MOST_CHANGES else ""
        yield wrong(f"not as the tenants' files say; a sync would {words}{more}", "`trainyard sync`")
    for change in given:
        yield wrong(f"{change.what} is missing", change.detail)
    if not changes:
        yield well(f"{len(patient.settings.tenants)} tenants, as their files say")


def room(patient: Patient) -> Iterator[Finding]:
    """The quotas in each tenant's namespace, also those that others made, against the largest gang of its pipelines."""
    problems, tried = [], 0
    there = {item.metadata.name for item in ask(patient.core.list_namespace).items}
    for name, tenant in sorted(patient.settings.tenants.items()):
        namespace = names.namespace(name)
        pipelines = patient.settings.pipelines_of(name)
        if namespace not in there or not pipelines:
            continue
        tried += 1
        quotas = ask(patient.core.list_namespaced_resource_quota, namespace).items
        for pipeline in pipelines:
            wanted = quota.demand(gang_pods(pipeline, tenant, patient.settings.cluster))
            never = [short for short in quota.shortages(quotas, wanted) if short.never]
            if never:
                words = "; ".join(
                    f"quota {short.quota} has {quota.display(short.resource, short.hard)} of {short.resource}, "
                    f"{quota.display(short.resource, short.needed)} are needed"
                    for short in never
                )
                problems.append(f"pipeline {pipeline.name} ({pipeline.gang.arithmetic()}) in {namespace}: {words}")
    if problems:
        todo = "raise the quota (ours: the tenant's slots, then `trainyard sync`; another's: who made it), or make the gang smaller"
        yield wrong("; ".join(problems), todo)
    elif not tried:
        yield absent("no tenant's namespace is there that has pipelines")
    else:
        yield well(f"the largest gang of {tried} tenants fits into its quota")


def gang_pods(pipeline: Pipeline, tenant: Tenant, cluster: ClusterProfile) -> list[dict[str, str]]:
    """Resources of each pod of the pipeline's gang."""
    slot, gang = SlotSpec(**tenant.slot.model_dump()), pipeline.gang
    servers = [(gang.chief_slots, 0), *[(gang.ps_slots, 0)] * gang.parameter_servers]
    return [
        pod_resources(slot, slots, counts_scratch=cluster.counts_scratch, gpus=gpus, gpu_resource=cluster.gpu_resource)
        for slots, gpus in [*servers, *[(gang.worker_slots, gang.worker_gpus)] * gang.workers]
    ]
