"""The ``pods`` section of a cluster profile: what a site gives every pod and Job of Trainyard. Passed through, never interpreted.

Names and values are Kubernetes' own; only what would collide with ours, or what no API server takes, is refused here. What a pod *is*
(user, limits, volumes, command) is decided in :mod:`trainyard.kube.pod` and is no site's matter.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainyard.contract.names import LABEL_MANAGED_BY
from trainyard.settings.base import Section

OURS: Final = "trainyard.dev"
"""The prefix of our own labels and annotations."""
TAKEN: Final = frozenset(
    {
        LABEL_MANAGED_BY,
        # Airflow's operator finds its pods by these.
        *("airflow_kpo_in_cluster", "airflow_version", "airflow-worker", "already_checked", "dag_id", "kubernetes_pod_operator"),
        *("map_index", "parent_dag_id", "run_id", "task_id", "try_number"),
        # Kubernetes' Job controller writes these.
        *("controller-uid", "job-name"),
    }
)
TAKEN_PREFIXES: Final = (OURS, "batch.kubernetes.io")

_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_KEY: Final = re.compile(rf"^({_SUBDOMAIN}/)?{_NAME}$")
_VALUE: Final = re.compile(rf"^({_NAME})?$")


def _check_key(key: str) -> str:
    if not _KEY.match(key):
        raise ValueError("is no key that Kubernetes takes: write name or prefix/name, as team or example.com/cost-center")
    return key


def _check_own_key(key: str) -> str:
    prefix = key.split("/", 1)[0] if "/" in key else ""
    if key in TAKEN or any(prefix == taken or prefix.endswith(f".{taken}") for taken in TAKEN_PREFIXES):
        raise ValueError("is set by Trainyard, Airflow or Kubernetes itself: choose a key of your own, as example.com/team")
    return _check_key(key)


def _check_value(value: str) -> str:
    if not _VALUE.match(value):
        raise ValueError("is no value that a label may have: up to 63 letters, digits, dots, dashes and underscores")
    return value


SelectorKey = Annotated[str, AfterValidator(_check_key)]
OwnKey = Annotated[str, AfterValidator(_check_own_key)]
LabelValue = Annotated[str, AfterValidator(_check_value)]
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""Name of an object in Kubernetes."""


class Toleration(Section):
    """One taint that pods of ours bear. Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/."""

    key: SelectorKey | None = None
    """The taint's key; without one, `operator: Exists` bears every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """`Exists`: whatever its value."""
    value: LabelValue | None = None
    """The taint's value, with `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; null: every effect."""
    toleration_seconds: int | None = Field(default=None, ge=0)
    """With `NoExecute`: how long a pod stays once the taint is there. Null: for ever."""

    @model_validator(mode="after")
    def _as_the_api_server_has_it(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise ValueError("a toleration without a key needs operator: Exists")
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("operator Exists takes no value: remove value, or write operator: Equal")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("toleration_seconds needs effect: NoExecute")
        return self


class SitePods(Section):
    """What a site gives every pod and Job: steps, replicas and upkeep alike."""

    labels: dict[OwnKey, LabelValue] = Field(default_factory=dict)
    """Labels of every pod and Job, beside ours."""
    annotations: dict[OwnKey, str] = Field(default_factory=dict)
    """Annotations of every pod and Job, beside ours."""
    node_selector: dict[SelectorKey, LabelValue] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that pods bear."""
    priority_class_name: ObjectName | None = None
    """A PriorityClass of the cluster."""
    scheduler_name: ObjectName | None = None
    """Another scheduler than the cluster's default."""
    host_network: bool = False
    """Pods use their node's network. Their namespaces then take any pod (Pod Security `privileged`), and no NetworkPolicy holds."""
