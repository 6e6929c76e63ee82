"""A pod of the platform's own: the airflow image in the platform's namespace, with the one identity that may delete tenants' Jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubernetes import client as k8s

from trainyard.contract import environment, names
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.settings import ClusterProfile

RESOURCES: Final = {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "256Mi"}


def upkeep_pod(
    cluster: ClusterProfile,
    name: str,
    *,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    labels: Mapping[str, str],
    deadline_s: int,
    annotations: Mapping[str, str] | None = None,
) -> k8s.V1Pod:
    """A pod that runs ``python -m trainyard.upkeep <arguments>`` for ``deadline_s`` seconds at most."""
    parts = PodParts(
        site=Site.of(cluster, cluster.images.airflow),
        command=["python", "-m", "trainyard.upkeep", *arguments],
        resources={key: amount for key, amount in RESOURCES.items() if cluster.counts_scratch or key != "ephemeral-storage"},
        scratch=RESOURCES["ephemeral-storage"],
        environment=variables,
        labels=labels,
        annotations=annotations or {},
        secrets={
            environment.S3_ACCESS_KEY: (names.SECRET_UPKEEP, "access_key"),
            environment.S3_SECRET_KEY: (names.SECRET_UPKEEP, "secret_key"),
        },
        service_account=names.SERVICE_ACCOUNT_UPKEEP,
        api_access=True,
        active_deadline_s=deadline_s,
    )
    return as_pod(pod_template(parts), name, names.PLATFORM_NAMESPACE)
