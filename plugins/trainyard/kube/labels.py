"""Labels and annotations of everything Trainyard makes in a cluster: identity is in labels, never read from a name."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.contract import names
from trainyard.contract.run_spec import RunSpec


def run_labels(spec: RunSpec) -> dict[str, str]:
    """Labels of every object of a run."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_INSTANCE: names.instance(spec.storage.bucket, spec.tenant),
        names.LABEL_RUN: spec.run,
        names.LABEL_TENANT: spec.tenant,
        names.LABEL_PIPELINE: spec.pipeline,
    }


def step_labels(spec: RunSpec, step: str) -> dict[str, str]:
    """Labels of a step's pod."""
    return run_labels(spec) | {names.LABEL_STEP: step}


def gang_labels(spec: RunSpec, generation: int, role: str | None = None) -> dict[str, str]:
    """Labels of a gang's objects; with ``role``, of one role's Job and pods."""
    labels = run_labels(spec) | {names.LABEL_STEP: "train", names.LABEL_GENERATION: str(generation)}
    return labels | ({names.LABEL_ROLE: role} if role else {})


def identity(labels: Mapping[str, str]) -> dict[str, str]:
    """Those of our own: what a site adds may change between two tries, and they are to find the same pod."""
    return {key: value for key, value in labels.items() if key.startswith(names.LABEL_PREFIX) or key == names.LABEL_MANAGED_BY}


def run_annotations(spec: RunSpec) -> dict[str, str]:
    """Airflow's full ids, which may be longer than a label and hold any character."""
    return {names.ANNOTATION_DAG_ID: spec.dag_id, names.ANNOTATION_RUN_ID: spec.run_id}


def selector(labels: dict[str, str]) -> str:
    """The labels as a label selector."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def run_selector(run: str) -> str:
    """Selects every object of a run."""
    return selector({names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: run})


def instance_selector(instance: str, run: str | None = None) -> str:
    """Selects what one deployment has made: all of it, or all of a run."""
    wanted = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_INSTANCE: instance}
    return selector(wanted | ({names.LABEL_RUN: run} if run is not None else {}))


def gang_selector(run: str, generation: int | None = None) -> str:
    """Selects the gang of a run, of one generation or of all."""
    wanted = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_RUN: run, names.LABEL_STEP: "train"}
    return selector(wanted | ({names.LABEL_GENERATION: str(generation)} if generation is not None else {}))
