"""Whether a run is to be: the form against configuration and tenant, the code's digest, and whether anything changed.

What is written, is written once: ``spec.json`` by If-None-Match. A cleared or retried run finds it and changes nothing.
"""

from __future__ import annotations

import datetime
import logging
from typing import TYPE_CHECKING, Any, Final

from trainyard.contract import keys
from trainyard.contract.run_spec import CodeSpec, RunSpec
from trainyard.errors import ConflictError, NotFoundError, RefusedError
from trainyard.operators.run_access import read_spec, run_of
from trainyard.pipelines import turns
from trainyard.pipelines.form import Form
from trainyard.pipelines.spec import build_run_spec, fingerprint
from trainyard.settings import Pipeline, Settings, load_tenant
from trainyard.steps import train
from trainyard.steps.check import NotYet
from trainyard.store import Store, credentials, store_for

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

GOOD: Final = frozenset({"exported", "rejected"})
REMEMBERED: Final = 100
"""Admitted runs of a pipeline that are looked back over for the last good one."""
SCHEDULED: Final = "scheduled"


class Admission:
    """The admission of one pipeline's runs; an instance is what the ``check`` task calls."""

    def __init__(self, tenant: str, pipeline: str) -> None:
        self._tenant = tenant
        self._pipeline = pipeline

    def __call__(self, context: Context) -> str | None:
        """Admit the run: None when its spec is in S3, or why there is nothing to do.

        Raises:
            ConfigError, RefusedError, NotFoundError: the run may not be, with the reason; nothing was written.
            NotYet: it may be later; nothing was written.
            UnavailableError: S3 does not answer.
        """
        settings = load_tenant(self._tenant).settings
        pipeline = self._find(settings)
        store = store_for(settings, self._tenant)
        run = run_of(context, self._pipeline)
        if read_spec(store, run) is not None:
            log.info("run %s: its spec was written before and stays as it is", run)
            return None
        if settings.tenants[self._tenant].state == "draining":
            raise RefusedError(f"tenant {self._tenant} is draining, no new run begins: tenants/{self._tenant}.yaml says `state: draining`")
        spec = self._spec(context, settings, pipeline, store)
        self._wait_for_turn(context, settings)
        if not spec.requested and pipeline.retrain == "changed" and (last := last_good(store, spec)) is not None:
            return self._unchanged(store, spec, last)
        try:
            store.put_json(keys.spec(run), spec.model_dump(mode="json"), if_none_match=True)
        except ConflictError:
            log.info("run %s: its spec was written by an earlier try", run)
        remember(store, spec)
        log.info("run %s: %s %s, %s", run, spec.dataset.name, spec.dataset.version, pipeline.gang.arithmetic())
        return None

    def _wait_for_turn(self, context: Context, settings: Settings) -> None:
        ti: Any = context["ti"]
        began: datetime.datetime | None = getattr(context["dag_run"], "start_date", None)
        if began is not None and datetime.datetime.now(datetime.UTC) - began > turns.AT_MOST:
            log.info("this run has waited for its turn for %s: it begins", turns.AT_MOST)
            return
        waits = turns.gangs_that_wait(
            settings, self._tenant, lambda dag_id: ti.get_ti_count(dag_id=dag_id, task_ids=[train.STEP], states=["scheduled"])
        )
        if waits is not None:
            raise NotYet(waits)

    def _find(self, settings: Settings) -> Pipeline:
        try:
            return settings.pipelines[self._pipeline]
        except KeyError:
            raise NotFoundError(f"pipelines/{self._pipeline}.yaml cannot be used any more: `trainyard validate` says why") from None

    def _spec(self, context: Context, settings: Settings, pipeline: Pipeline, store: Store) -> RunSpec:
        dag_run: Any = context["dag_run"]
        return build_run_spec(
            settings,
            pipeline,
            form=Form.read(dag_run.conf or {}),
            dag_id=dag_run.dag_id,
            run_id=dag_run.run_id,
            partition_key=dag_run.partition_key,
            requested=_kind(dag_run) != SCHEDULED,
            code=resolve_code(store, pipeline),
            endpoint=settings.cluster.s3.endpoint or credentials(settings).endpoint,
            now=datetime.datetime.now(datetime.UTC),
        )

    @staticmethod
    def _unchanged(store: Store, spec: RunSpec, last: str) -> str:
        reason = f"version, code and parameters are those of the last good run, {last}"
        result = {
            "version": 1,
            "outcome": "unchanged",
            "reason": reason,
            "metrics": {},
            "model": spec.export.model,
            "model_version": None,
            "dataset_version": spec.dataset.version,
            "ended": datetime.datetime.now(datetime.UTC).isoformat(),
        }
        store.put_json(keys.run_result(spec.run), result)
        return f"{reason}: nothing to do (retrain: changed)"


def _kind(dag_run: Any) -> str:
    kind = dag_run.run_type
    return str(getattr(kind, "value", kind))


def resolve_code(store: Store, pipeline: Pipeline) -> CodeSpec | None:
    """The pipeline's package as one digest: the pinned one, or the newest published.

    Raises:
        NotFoundError: nothing of that name (or digest) is published, with the command that does it.
    """
    package, pinned = pipeline.model.package, pipeline.model.digest
    if package is None:
        return None
    if pinned is not None:
        key = keys.code_wheel(package, pinned)
        if not store.exists(key):
            raise NotFoundError(f"package {package} has no published wheel {pinned[:12]}… (model.digest): publish it, or remove the pin")
        return CodeSpec(package=package, sha256=pinned, key=key)
    newest = store.get_json(keys.code_newest(package))
    if not isinstance(newest, dict) or "sha256" not in newest:
        raise NotFoundError(f"package {package} is not published: `trainyard publish {pipeline.name}` does it")
    return CodeSpec(package=package, sha256=newest["sha256"], key=newest.get("key") or keys.code_wheel(package, newest["sha256"]))


def remember(store: Store, spec: RunSpec) -> None:
    """Put the run on its pipeline's list of admitted runs, the newest first; once, however often it is tried."""
    key = keys.admitted(spec.pipeline)
    entry = {"run": spec.run, "fingerprint": fingerprint(spec), "admitted": spec.created.isoformat()}
    while True:
        found = store.get_json_with_etag(key)
        entries = found[0]["runs"] if found else []
        if any(known["run"] == spec.run for known in entries):
            return
        try:
            document = {"version": 1, "runs": [entry, *entries][:REMEMBERED]}
            store.put_json(key, document, if_match=found[1] if found else None, if_none_match=found is None)
            return
        except ConflictError:
            continue  # another run of the pipeline was admitted meanwhile


def last_good(store: Store, spec: RunSpec) -> str | None:
    """The pipeline's last good run, if it trained just what ``spec`` says; None if something changed, or none was good."""
    document = store.get_json(keys.admitted(spec.pipeline))
    for entry in (document or {}).get("runs", ()):
        result = store.get_json(keys.run_result(entry["run"])) or {}
        if result.get("outcome") in GOOD:
            return str(entry["run"]) if entry["fingerprint"] == fingerprint(spec) else None
    return None
