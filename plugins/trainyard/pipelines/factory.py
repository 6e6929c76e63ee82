"""One DAG for each pipeline of one tenant. Nothing is asked of any network here, and no file is read but the configuration's."""

from __future__ import annotations

import logging
from typing import Final

from airflow.sdk import DAG, Param, get_parsing_context

from trainyard.contract import names
from trainyard.pipelines import priority
from trainyard.pipelines.admission import Admission
from trainyard.pipelines.form import fields
from trainyard.pipelines.timetable import DatasetVersionTimetable
from trainyard.settings import Pipeline, Settings, Tenant, load_tenant
from trainyard.steps import check, clean_up, evaluate, export, gate, plan, prepare, shard, train

log = logging.getLogger(__name__)

TAG: Final = "trainyard"
MAX_ACTIVE_RUNS: Final = 4
"""Of one pipeline. What really limits is the tenant's pool; this keeps a backfill of many versions from filling the scheduler's view."""


def build_dags(settings: Settings, tenant: str) -> dict[str, DAG]:
    """The tenant's DAGs by id; while a task starts, only the one that it belongs to."""
    asked = get_parsing_context().dag_id
    found = {}
    for pipeline in settings.pipelines_of(tenant):
        dag_id = names.dag_id(tenant, pipeline.name)
        if asked is None or asked == dag_id:
            found[dag_id] = build_dag(settings, pipeline)
    return found


def tenant_dags(tenant: str) -> dict[str, DAG]:
    """The DAGs of a tenant from the configuration of this deployment: one broken file never takes away the DAGs of others.

    Raises:
        ConfigError: the tenant's own file, or the cluster profile, cannot be used.
    """
    view = load_tenant(tenant)
    for problem in view.problems:
        log.warning("%s", problem)
    return build_dags(view.settings, tenant)


def build_dag(settings: Settings, pipeline: Pipeline) -> DAG:
    """The pipeline's DAG: check → prepare → shard → plan → train → evaluate → gate → export, and the teardown of it all."""
    tenant, dataset = settings.tenant_of(pipeline), settings.dataset_of(pipeline)
    releases = {name: version.released for name, version in dataset.versions.items()}
    params = {
        name: Param(field.default, title=field.title, description=field.help, **field.schema)
        for name, field in fields(pipeline, tenant, dataset).items()
    }
    dag = DAG(
        dag_id=names.dag_id(pipeline.tenant, pipeline.name),
        description=pipeline.description,
        doc_md=_doc(pipeline, tenant),
        # A tenant that drains has no ticks; what a person starts all the same, check refuses.
        schedule=DatasetVersionTimetable(releases, pipeline.schedule if tenant.state == "active" else None),
        catchup=False,
        max_active_runs=MAX_ACTIVE_RUNS,
        params=params,
        tags={TAG, pipeline.tenant, dataset.name},
        default_args={
            "owner": tenant.owner,
            "pool": names.pool(tenant.name),
            "priority_weight": priority.of_step(tenant, pipeline),
            "weight_rule": "absolute",
        },
        render_template_as_native_obj=False,
    )
    with dag:
        gang = train.build(pipeline)
        gang.priority_weight = priority.of_gang(tenant, pipeline)
        admit = check.build(pipeline, Admission(tenant.name, pipeline.name))
        admit.priority_weight = priority.CHECK
        last = export.build(pipeline)
        (
            admit
            >> prepare.build(pipeline)
            >> shard.build(pipeline, dataset)
            >> plan.build(pipeline)
            >> gang
            >> evaluate.build(pipeline)
            >> gate.build(pipeline)
            >> last
        )
        # Its setup is check: it runs whenever check passed, whatever became of the rest; a refused form starts nothing, not even this.
        end = clean_up.build(pipeline)
        end.priority_weight = priority.CLEAN_UP
        last >> end.as_teardown(setups=admit, on_failure_fail_dagrun=True)
    return dag


def _doc(pipeline: Pipeline, tenant: Tenant) -> str:
    gate_, model = pipeline.gate, pipeline.model
    champion = ", and higher than the champion's" if gate_.beat_champion else ""
    code = f" from the published package `{model.package}`" if model.package else ""
    schedule = f"`{pipeline.schedule}` (UTC), the newest released version" if pipeline.schedule else "on request only"
    draining = f"\n**Tenant {tenant.name} is draining: no new run begins.**\n" if tenant.state == "draining" else ""
    return f"""### {pipeline.description}
{draining}
| | |
|---|---|
| Model | `{model.build}`{code} |
| Dataset | `{pipeline.dataset}`; a run is for one of its versions: the run's partition key |
| Gang | {pipeline.gang.arithmetic()} |
| Gate | {gate_.metric} at least {gate_.minimum:g}{champion} |
| Exported as | `{pipeline.export.model}` |
| Schedule | {schedule} |

A step that fails can be cleared: what was done is not done again. A run that is marked failed is taken down within seconds.
"""
