"""What a run is, in one document: Airflow's states, and what its pods wrote to S3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.api import records
from trainyard.api.deployment import Target
from trainyard.contract import keys, names
from trainyard.errors import ConfigError, NotFoundError, UnavailableError

ENDED = frozenset({"success", "failed"})
SCANNED_RUNS = 10_000
"""A short name is a hash: to find its run, names are made for at most this many runs of a pipeline, the newest first."""


def document(target: Target, run_id: str) -> dict[str, Any]:
    """Everything about one run.

    Raises:
        NotFoundError: Airflow has no such run.
        UnavailableError: S3 does not answer.
    """
    row = records.run(target.dag_id, run_id)
    if row is None:
        raise NotFoundError(f"pipeline `{target.pipeline.name}` has no run `{run_id}`")
    found = _common(target, row)
    name = found["run"]
    data = target.data
    generation = data.get_json(keys.generation(name))
    return found | {
        "dataset": target.pipeline.dataset,
        "queued": row["queued"],
        "steps": records.steps(target.dag_id, run_id),
        "progress": data.get_json(keys.progress(name)),
        "generation": generation["generation"] if generation else None,
        "replicas": sorted(data.list_folders(keys.logs(name))),
    }


def board(targets: Sequence[Target], limit: int) -> list[dict[str, Any]]:
    """The latest runs of some pipelines, the newest first, with how they ended.

    A tenant whose S3 does not answer takes nothing from the others' rows: its runs say so in ``store``.
    """
    by_dag = {target.dag_id: target for target in targets}
    rows = []
    for row in records.latest_runs(list(by_dag), limit):
        target = by_dag[row["dag_id"]]
        try:
            rows.append(_common(target, row))
        except UnavailableError as e:
            rows.append(_common(target, row, ask_store=False) | {"store": str(e)})
    return rows


def resolve(text: str, targets: Sequence[Target]) -> dict[str, Any]:
    """The run that ``text`` means, among the pipelines that the caller may see.

    In this order: ``dag_id/run_id``; a pipeline's name, ``tenant/pipeline`` or DAG id, for its latest run; a run's short name or its
    start; a run's id.

    Raises:
        NotFoundError: nothing is named so.
        ConfigError: several runs are.
    """
    by_dag = {target.dag_id: target for target in targets}
    before, slash, after = text.partition("/")
    if slash and before in by_dag and records.run(before, after):
        return _found(by_dag[before], after)
    for target in targets:
        if text in (target.pipeline.name, f"{target.tenant}/{target.pipeline.name}", target.dag_id):
            latest = records.latest_runs([target.dag_id], 1)
            if not latest:
                raise NotFoundError(f"pipeline `{target.pipeline.name}` has no runs yet")
            return _found(target, latest[0]["run_id"])
    matches = []
    for target in targets:
        stem = f"{names.slug(target.pipeline.name, 20)}-"
        if text.startswith(stem) and len(text) > len(stem):
            matches += [
                (target, run_id) for run_id in records.run_ids(target.dag_id)[:SCANNED_RUNS] if target.run_name(run_id).startswith(text)
            ]
    if not matches:
        matches = [(by_dag[dag_id], text) for dag_id in records.runs_named(text, list(by_dag))]
    if len(matches) == 1:
        return _found(*matches[0])
    if matches:
        shown = ", ".join(f"{target.dag_id}/{run_id}" for target, run_id in matches[:5])
        raise ConfigError(f"`{text}` means {len(matches)} runs ({shown}): write more of the name, or DAG/RUN_ID")
    raise NotFoundError(f"no run or pipeline that you may see is named `{text}`: `trainyard status` lists the latest runs")


def _common(target: Target, row: dict[str, Any], *, ask_store: bool = True) -> dict[str, Any]:
    name = target.run_name(row["run_id"])
    ended = row["state"] in ENDED
    result = spec = None
    if ask_store:
        # A run that was cleared after its end has a result of its past: it says nothing while the run goes on again.
        result = target.data.get_json(keys.run_result(name)) if ended else None
        if result and row["state"] == "success" and result["outcome"] in ("failed", "cancelled"):
            result = None
        if row["partition_key"] is None:
            spec = target.data.get_json(keys.spec(name))
    version = row["partition_key"] or (spec["dataset"]["version"] if spec else None)
    same = ("dag_id", "run_id", "state", "run_type", "requested_by", "note", "start", "end", "seconds")
    return {
        "run": name,
        "tenant": target.tenant,
        "pipeline": target.pipeline.name,
        "dataset_version": version,
        "result": result,
        **{key: row[key] for key in same},
    }


def _found(target: Target, run_id: str) -> dict[str, Any]:
    return {
        "run": target.run_name(run_id),
        "dag_id": target.dag_id,
        "run_id": run_id,
        "tenant": target.tenant,
        "pipeline": target.pipeline.name,
    }
