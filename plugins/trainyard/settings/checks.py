"""What must hold between files: names that exist, and sums that fit. Each finding is a :class:`Problem` of the pipeline's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard.contract import zoo
from trainyard.settings.clusters import ClusterProfile
from trainyard.settings.datasets import Dataset
from trainyard.settings.pipelines import Gang, Pipeline
from trainyard.settings.reading import Document, Problem, did_you_mean
from trainyard.settings.tenants import Tenant


def gang_fits(gang: Gang, tenant: Tenant) -> str | None:
    """None, or the arithmetic of a gang that asks for more slots than its tenant has. Used for files and for forms."""
    if gang.slots <= tenant.slots:
        return None
    return f"{gang.arithmetic()}; tenant {tenant.name} has {tenant.slots}"


def gang_has_gpus(gang: Gang, tenant: Tenant) -> str | None:
    """None, or the arithmetic of a gang that asks for more GPUs than its tenant has. Used for files and for forms."""
    if gang.gpus <= tenant.gpus:
        return None
    workers = f"{gang.workers} worker{'s' if gang.workers != 1 else ''}"
    return f"{workers} × {gang.worker_gpus} GPUs = {gang.gpus}; tenant {tenant.name} has {tenant.gpus}"


def gang_is_fed(gang: Gang, dataset: Dataset) -> str | None:
    """None, or why some worker would have nothing to read. Used for files and for forms."""
    if gang.workers <= dataset.shards:
        return None
    return f"{gang.workers} workers, and dataset {dataset.name} has {dataset.shards} shards: a worker needs at least one"


def gang_has_ports(gang: Gang, cluster: ClusterProfile) -> str | None:
    """None, or why the replicas do not fit into a block of ports (where pods share ports). Used for files and for forms."""
    replicas = 1 + gang.parameter_servers + gang.workers
    if cluster.ports is None or replicas <= cluster.ports.block:
        return None
    return f"{replicas} replicas, and a gang has {cluster.ports.block} ports on cluster {cluster.name}"


def check_members(tenants: Mapping[str, Tenant], documents: Mapping[str, Document]) -> Iterator[Problem]:
    """One login has one role in Airflow, whatever tenants it is in: two files must not say two."""
    said: dict[str, tuple[str, str]] = {}
    for name, tenant in tenants.items():
        for member, role in tenant.members.items():
            first, first_role = said.setdefault(member, (name, role))
            if role != first_role:
                message = f"is '{first_role}' in tenants/{first}.yaml, and a login has one role: write the same in both"
                yield documents[name].problem(("members", member), message)


def check_dataset(dataset: Dataset, document: Document) -> Iterator[Problem]:
    """What a dataset's file may name."""
    if dataset.builder.startswith(zoo.PREFIX) and dataset.builder not in zoo.BUILDERS:
        yield document.problem(("builder",), f"is not a builder of Trainyard's own; {did_you_mean(dataset.builder, zoo.BUILDERS)}")


def check_pipeline(
    pipeline: Pipeline,
    document: Document,
    *,
    tenants: Mapping[str, Tenant | None],
    datasets: Mapping[str, Dataset | None],
    cluster: ClusterProfile | None,
) -> Iterator[Problem]:
    """A pipeline against all it names. A value of None in a mapping stands for a file that exists and is itself wrong."""
    tenant = tenants.get(pipeline.tenant)
    dataset = datasets.get(pipeline.dataset)
    if pipeline.tenant not in tenants:
        yield document.problem(("tenant",), f"there is no tenants/{pipeline.tenant}.yaml; {did_you_mean(pipeline.tenant, tenants)}")
    if pipeline.dataset not in datasets:
        yield document.problem(("dataset",), f"there is no datasets/{pipeline.dataset}.yaml; {did_you_mean(pipeline.dataset, datasets)}")
    if pipeline.model.package is None and pipeline.model.build not in zoo.MODELS:
        known = did_you_mean(pipeline.model.build, zoo.MODELS)
        yield document.problem(("model", "build"), f"is not a model of Trainyard's own; {known}")
    if tenant is not None:
        if wrong := gang_fits(pipeline.gang, tenant):
            yield document.problem(("gang",), f"{wrong}: lower the gang, or raise slots in tenants/{tenant.name}.yaml")
        if wrong := gang_has_gpus(pipeline.gang, tenant):
            yield document.problem(("gang", "worker_gpus"), f"{wrong}: lower it, or raise gpus in tenants/{tenant.name}.yaml")
        if pipeline.image is not None and not tenant.allows_image(pipeline.image):
            allowed = f" (it may name {', '.join(tenant.images)})" if tenant.images else ""
            message = f"tenant {tenant.name} may not run it{allowed}: allow it in tenants/{tenant.name}.yaml, images"
            yield document.problem(("image",), message)
        if pipeline.step_slots > tenant.slots:
            message = f"a step would take {pipeline.step_slots} slots; tenant {tenant.name} has {tenant.slots}: lower it"
            yield document.problem(("step_slots",), message)
    if dataset is not None and (wrong := gang_is_fed(pipeline.gang, dataset)):
        yield document.problem(("gang", "workers"), f"{wrong}: lower workers, or raise shards in datasets/{dataset.name}.yaml")
    if cluster is not None and (wrong := gang_has_ports(pipeline.gang, cluster)):
        yield document.problem(("gang",), f"{wrong}: lower the gang, or raise ports.block in clusters/{cluster.name}.yaml")
