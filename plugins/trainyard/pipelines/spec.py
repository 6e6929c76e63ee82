"""From configuration, form and partition key to the run spec, or to one refusal with the arithmetic. Pure: nothing is asked or written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from trainyard.contract import names
from trainyard.contract.run_spec import CodeSpec, DatasetSpec, ExportSpec, GangSpec, GateSpec, ModelSpec, RunSpec, SlotSpec, StorageSpec
from trainyard.contract.run_spec import TrainingSpec as TrainingOfSpec
from trainyard.errors import ConfigError, RefusedError
from trainyard.pipelines.form import Form, fields
from trainyard.settings import Dataset, Gang, Pipeline, Settings, Training
from trainyard.settings.checks import gang_fits, gang_has_gpus, gang_has_ports, gang_is_fed
from trainyard.settings.reading import did_you_mean

LAYOUT_FORMAT: Final = 1
"""Of the files that ``prepare`` and ``shard`` write: another number is another layout, whose folder is made anew."""


def layout_hash(dataset: Dataset, version: str, code: CodeSpec | None = None) -> str:
    """Hash over everything that changes a layout's bytes or its files; ``code`` is the run's package, which may hold the builder."""
    parts = {
        "format": LAYOUT_FORMAT,
        "builder": dataset.builder,
        "config": dataset.config,
        "version": version,
        "splits": [dataset.train_split, dataset.evaluation_split],
        "shards": dataset.shards,
        "shard_tasks": dataset.shard_tasks,
        # New builder code is a new layout: runs that read the old one must not find its files replaced.
        "code": code.sha256 if code is not None and dataset.builder.split(":")[0].split(".")[0] == code.package else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def choose_version(dataset: Dataset, form: Form, partition_key: str | None, now: datetime) -> str:
    """The dataset version of a run: the partition key, else the form's, else the newest that is released.

    Raises:
        RefusedError: key and form differ, or the version is not released yet.
        ConfigError: there is no such version.
    """
    if partition_key and form.dataset_version and partition_key != form.dataset_version:
        raise RefusedError(
            f"the partition key says version {partition_key} and the form says {form.dataset_version}: give only one of them"
        )
    wanted = partition_key or form.dataset_version
    released = [name for name, version in dataset.by_release() if version.released <= now]
    if wanted is None:
        if not released:
            first, version = dataset.by_release()[0]
            raise RefusedError(f"dataset {dataset.name}: its first version, {first}, is released at {version.released.isoformat()}")
        return released[-1]
    if wanted not in dataset.versions:
        raise ConfigError(f"dataset {dataset.name} has no version {wanted}: {did_you_mean(wanted, dataset.versions)}")
    if wanted not in released:
        raise RefusedError(f"dataset {dataset.name}: version {wanted} is released at {dataset.versions[wanted].released.isoformat()}")
    return wanted


def _training(training: Training, form: Form) -> Training:
    if form.epochs is not None and form.steps is not None:
        raise RefusedError(f"epochs {form.epochs} and steps {form.steps} are both given: clear one of them")
    changes: dict[str, Any] = {
        name: value for name in ("mode", "batch_size", "learning_rate") if (value := getattr(form, name)) is not None
    }
    if form.epochs is not None or form.steps is not None:
        # Who gives one of the two means it in place of the pipeline's own, whichever of the two that is.
        changes |= {"epochs": form.epochs, "steps": form.steps}
    return training.model_copy(update=changes)


def _check_limits(pipeline: Pipeline, settings: Settings, form: Form) -> None:
    """The form's own limits once more: a backfill's conf, or a DAG not parsed since the configuration changed, may be past them."""
    limits = fields(pipeline, settings.tenant_of(pipeline), settings.dataset_of(pipeline))
    wrong = []
    for name, value in dataclasses.asdict(form).items():
        if value is None or name == "dataset_version":
            continue
        schema = limits[name].schema
        number = isinstance(value, int | float) and not isinstance(value, bool)
        kind = schema["type"]
        if "enum" in schema:
            if value not in schema["enum"]:
                wrong.append(f"{name}: {value!r}: {did_you_mean(str(value), schema['enum'])}")
        elif not number or ("integer" in kind and not isinstance(value, int)):
            wrong.append(f"{name}: {value!r}: give a {'whole number' if 'integer' in kind else 'number'}")
        elif value < schema.get("minimum", value) or value <= schema.get("exclusiveMinimum", value - 1):
            wrong.append(f"{name}: {value}: give {'at least 1' if 'minimum' in schema else 'more than 0'}")
    if wrong:
        raise ConfigError(wrong)


def _gang(pipeline: Pipeline, settings: Settings, form: Form) -> Gang:
    changes = {name: value for name in ("workers", "parameter_servers") if (value := getattr(form, name)) is not None}
    gang = pipeline.gang.model_copy(update=changes)
    tenant, dataset = settings.tenant_of(pipeline), settings.dataset_of(pipeline)
    problems = [gang_fits(gang, tenant), gang_has_gpus(gang, tenant), gang_is_fed(gang, dataset), gang_has_ports(gang, settings.cluster)]
    if wrong := [problem for problem in problems if problem]:
        raise RefusedError("; ".join(wrong))
    return gang


def build_run_spec(
    settings: Settings,
    pipeline: Pipeline,
    *,
    form: Form,
    dag_id: str,
    run_id: str,
    partition_key: str | None,
    requested: bool,
    code: CodeSpec | None,
    endpoint: str | None,
    now: datetime,
) -> RunSpec:
    """The document that every pod of the run is told.

    Args:
        settings: the configuration.
        pipeline: what is run.
        form: what a person changed for this run.
        dag_id: Airflow's, with ``run_id`` the run's identity.
        run_id: Airflow's.
        partition_key: the dataset version, if the run is for a partition.
        requested: whether a person asked for the run.
        code: the published package, resolved to one digest; None for a model of Trainyard's own.
        endpoint: URL of S3 as pods see it; None for AWS' own.
        now: when the run is admitted: only versions released by then exist.

    Raises:
        ConfigError: a value that cannot be: field, value, way out.
        RefusedError: values that may not be together: the arithmetic.
    """
    _check_limits(pipeline, settings, form)
    dataset, tenant, prefix = settings.dataset_of(pipeline), settings.tenant_of(pipeline), settings.cluster.s3.bucket_prefix
    version = choose_version(dataset, form, partition_key, now)
    gang = _gang(pipeline, settings, form)
    return RunSpec(
        run=names.run_name(pipeline.name, dag_id, run_id),
        dag_id=dag_id,
        run_id=run_id,
        tenant=tenant.name,
        pipeline=pipeline.name,
        created=now,
        requested=requested,
        seed=pipeline.seed,
        storage=StorageSpec(
            endpoint=endpoint,
            region=settings.cluster.s3.region,
            bucket=names.data_bucket(prefix, tenant.name),
            models_bucket=names.models_bucket(prefix, tenant.name),
        ),
        dataset=DatasetSpec(
            name=dataset.name,
            version=version,
            released=dataset.versions[version].released,
            builder=dataset.builder,
            config=dataset.config,
            train_split=dataset.train_split,
            evaluation_split=dataset.evaluation_split,
            shards=dataset.shards,
            shard_tasks=dataset.shard_tasks,
            layout=layout_hash(dataset, version, code),
        ),
        code=code,
        model=ModelSpec(build=pipeline.model.build, config=pipeline.model.config),
        training=TrainingOfSpec(**_training(pipeline.training, form).model_dump()),
        gang=GangSpec(**gang.model_dump()),
        slot=SlotSpec(**tenant.slot.model_dump()),
        image=pipeline.image,
        step_slots=pipeline.step_slots,
        evaluation_batch_size=pipeline.evaluation_batch_size,
        gate=GateSpec(**pipeline.gate.model_dump()),
        export=ExportSpec(**pipeline.export.model_dump()),
    )


def local_run_spec(
    settings: Settings,
    pipeline: Pipeline,
    *,
    version: str | None,
    values: Mapping[str, Any],
    code: CodeSpec | None,
    run_id: str,
    now: datetime,
) -> RunSpec:
    """The spec of a run in one process of a person's own: as ``check`` would write it, but without the published package ``code``.

    That one only says which layout of the data is meant: the person trains their own source.

    Raises:
        ConfigError, RefusedError: as :func:`build_run_spec`.
    """
    spec = build_run_spec(
        settings,
        pipeline,
        form=Form.read(values),
        dag_id=names.dag_id(pipeline.tenant, pipeline.name),
        run_id=run_id,
        partition_key=version,
        requested=True,
        code=code,
        endpoint=settings.cluster.s3.endpoint,
        now=now,
    )
    return spec.model_copy(update={"code": None})


def fingerprint(spec: RunSpec) -> str:
    """SHA-256 over what makes a training what it is: version, code, model and parameters; not who asked, when, or under which name."""
    document = spec.model_dump(mode="json", exclude={"run", "dag_id", "run_id", "created", "requested", "storage", "slot", "step_slots"})
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
