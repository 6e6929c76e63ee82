"""The teardown of a run: a pod of the platform that removes what is left, and a verdict that keeps a red run red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk.exceptions import AirflowFailException
from kubernetes import client as k8s

from trainyard.contract import environment, keys, names
from trainyard.kube import labels
from trainyard.operators.run_access import open_run, run_of
from trainyard.operators.step_pod import HousePod
from trainyard.operators.upkeep_pod import upkeep_pod

if TYPE_CHECKING:
    from airflow.sdk import Context

DEADLINE_S: Final = 600
RED: Final = frozenset({"failed", "upstream_failed"})
GOOD_OUTCOMES: Final = frozenset({"exported", "rejected", "unchanged"})


def ended_by_a_person(states: Mapping[str, str]) -> bool:
    """Whether the run was marked failed, by the state of its tasks: Airflow skips then what had not begun.

    After a failure of its own what follows is ``upstream_failed``; only a gate that said no leaves something skipped, the export. (The
    run's note says it too, but Airflow gives tasks no note.)
    """
    return any(state == "skipped" and not (task == "export" and states.get("gate") == "success") for task, state in states.items())


def note(result: Mapping[str, Any]) -> str:
    """One line on what a run came to, from its ``result.json``: for those who look at a list of runs."""
    parts = []
    if result.get("model") and result.get("model_version"):
        parts.append(f"{result['model']} version {result['model_version']}")
    if result.get("reason"):
        parts.append(str(result["reason"]))
    parts += [f"{name} {value:.4g}" for name, value in (result.get("metrics") or {}).items() if name in ("accuracy", "loss")]
    if result.get("dataset_version"):
        parts.append(f"dataset version {result['dataset_version']}")
    outcome = str(result.get("outcome", "no result"))
    return f"{outcome}: {', '.join(parts)}" if parts else outcome


class CleanUpPod(HousePod):
    """``clean_up``: whatever the run has left in the cluster goes, and a run with anything red, or without a good outcome, ends red.

    It runs in the platform's namespace, with the one identity that may delete a tenant's Jobs. Airflow ends a run that was marked
    failed as *success* when its leaves were skipped (measured): so the verdict is ours, from the states of the tasks and from the
    evidence in S3.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, tenant: str, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tenant = tenant
        self.pipeline = pipeline

    @property
    def tenant_name(self) -> str:
        return self.tenant

    def compose(self, context: Context) -> k8s.V1Pod:
        """The upkeep image's ``clean-up`` command for this run."""
        access = open_run(self.tenant, run_of(context, self.pipeline))
        spec, cluster = access.spec, access.settings.cluster
        arguments = ["clean-up", "--tenant", spec.tenant, "--run", spec.run]
        if ended_by_a_person(self._states(context)):
            arguments += ["--outcome", "cancelled"]
        return upkeep_pod(
            cluster,
            f"{spec.run}-clean-up",
            arguments=arguments,
            variables={environment.RUN_SPEC: spec.to_json()},
            labels=labels.step_labels(spec, names.STEP_CLEAN_UP),
            annotations=labels.run_annotations(spec),
            deadline_s=DEADLINE_S,
        )

    def execute(self, context: Context) -> None:
        """Clean up, say what the run came to, then judge it."""
        super().execute(context)
        access = open_run(self.tenant, run_of(context, self.pipeline))
        result = access.store.get_json(keys.run_result(access.spec.run)) or {}
        context["ti"].xcom_push(key=names.XCOM_NOTE, value=note(result))
        red = [task for task, state in self._states(context).items() if state in RED]
        if red:
            # Not an ordinary exception: that would spend the teardown's retries on a run that stays red.
            raise AirflowFailException(f"the run is red: {', '.join(sorted(red))}")
        if result.get("outcome") not in GOOD_OUTCOMES:
            outcome = result.get("outcome", "no result")
            # Airflow skips what had not begun when a person ends a run: no task is red then, and nothing was done either.
            words = "no task is red, but nothing was exported and nothing rejected"
            raise AirflowFailException(f"{words} ({outcome}): the run was ended from outside")

    def _states(self, context: Context) -> dict[str, str]:
        ti: Any = context["ti"]
        dag_run: Any = context["dag_run"]
        found = ti.get_task_states(dag_id=dag_run.dag_id, run_ids=[dag_run.run_id]).get(dag_run.run_id, {})
        return {task: str(state) for task, state in found.items() if task != self.task_id}
