"""Names of runs, Jobs, pods, labels and buckets.

A run's identity is Airflow's ``(dag_id, run_id)``; both can be long and hold any character, so names are a readable prefix and a
hash, and the full ids stand in annotations. All names here match RFC 1123 and, with every suffix of ours, stay within 63 characters.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

LABEL_PREFIX: Final = "trainyard.dev/"
LABEL_RUN: Final = "trainyard.dev/run"
LABEL_TENANT: Final = "trainyard.dev/tenant"
LABEL_PIPELINE: Final = "trainyard.dev/pipeline"
LABEL_ROLE: Final = "trainyard.dev/role"
LABEL_STEP: Final = "trainyard.dev/step"
LABEL_GENERATION: Final = "trainyard.dev/generation"
LABEL_INSTANCE: Final = "trainyard.dev/instance"
"""Which deployment made the object: its bucket prefix, which no two deployments share. What bears another's is never touched."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "trainyard"
ANNOTATION_DAG_ID: Final = "trainyard.dev/dag-id"
ANNOTATION_RUN_ID: Final = "trainyard.dev/run-id"
ANNOTATION_PORTS: Final = "trainyard.dev/first-port"
ANNOTATION_SPEC: Final = "trainyard.dev/spec-sha256"

ROLE_CHIEF: Final = "chief"
ROLE_PS: Final = "ps"
ROLE_WORKER: Final = "worker"
ROLES: Final = (ROLE_CHIEF, ROLE_PS, ROLE_WORKER)

NOTE_CANCELLED: Final = "cancelled by "
"""How the note begins that ``trainyard cancel`` leaves at a run in Airflow."""
NOTE_RETRIED: Final = "tried again by "
"""The same, of ``trainyard retry``."""
XCOM_NOTE: Final = "note"
"""The teardown's XCom whose text becomes the run's note in Airflow."""
NOTE_LENGTH: Final = 1000
"""Characters that Airflow takes as a note."""

DAG_PREFIX: Final = "train_"
STEP_CLEAN_UP: Final = "clean_up"
STEP_REAP: Final = "reap"

SECRET_RUN: Final = "s3-run"
SECRET_EXPORT: Final = "s3-export"
SECRET_UPKEEP: Final = "s3-upkeep"
"""In the platform's namespace, for ``clean_up``. All three Secrets have the keys ``access_key`` and ``secret_key``."""
CONFIG_MAP_CA: Final = "s3-ca"
"""The authorities that sign the S3 server's certificate, where the cluster profile names a bundle."""
CA_KEY: Final = "ca.crt"
SERVICE_ACCOUNT: Final = "trainyard-pod"
SERVICE_ACCOUNT_UPKEEP: Final = "trainyard-upkeep"
"""In the platform's namespace: ``clean_up``, which takes down what a tenant's run has left."""
SERVICE_ACCOUNT_RUN: Final = "trainyard-run"
"""In the system's namespace: Airflow's scheduler and workers."""
SERVICE_ACCOUNT_SYNC: Final = "trainyard-sync"
"""In the system's namespace: ``trainyard sync``."""
ROLE_SYNC_TENANT: Final = "trainyard-sync-tenant"
"""What sync may in a tenant's namespace. The other identities' ClusterRoles have their names; all are in ``deploy/rbac``."""

PLATFORM_TEAM: Final = "platform"
PLATFORM_NAMESPACE: Final = "trainyard-platform"
SYSTEM_NAMESPACE: Final = "trainyard-system"
"""Where the identities live that no pod of ours may borrow."""
PLATFORM_POOL: Final = "platform-steps"
"""The pool of no team for ``check`` and ``clean_up``: they must never wait behind a gang."""
UPKEEP_POOL: Final = "platform-upkeep"
"""The pool of the platform's team, for the Dags in ``dags/platform``: no tenant's task can be in it."""
UPKEEP_LOGIN: Final = "_upkeep"
"""The login in Airflow of those Dags; no member of a tenant can be called so."""

TENANT_PATTERN: Final = r"^[a-z][a-z0-9-]{1,28}[a-z0-9]$"
"""3–30 characters: Airflow's teams need ≥ 3, bucket and namespace names are built from it."""
NAME_PATTERN: Final = r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$"
"""Pipelines, datasets, models: 1–40 characters."""


def slug(text: str, limit: int) -> str:
    """``text`` in lower-case letters, digits and single dashes, at most ``limit`` characters, never empty."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].strip("-")
    return cleaned if cleaned[:1].isalpha() else f"r{cleaned}"[:limit].strip("-")


def digest(*parts: str, length: int = 10) -> str:
    """Hex digest of ``parts`` that no two different tuples share by accident."""
    joined = "".join(f"{len(p)}:{p}" for p in parts)
    return hashlib.sha256(joined.encode()).hexdigest()[:length]


def run_name(pipeline: str, dag_id: str, run_id: str) -> str:
    """The run's short name, ≤ 31 characters: a DNS label, an S3 folder and a label value."""
    return f"{slug(pipeline, 20)}-{digest(dag_id, run_id)}"


def dag_id(tenant: str, pipeline: str) -> str:
    return f"{DAG_PREFIX}{tenant}_{pipeline}"


def gang_name(run: str, generation: int) -> str:
    """The headless Service's name and the prefix of a generation's Jobs."""
    return f"{run}-g{generation}"


def job_name(run: str, generation: int, role: str) -> str:
    return f"{gang_name(run, generation)}-{role}"


def instance(bucket: str, tenant: str) -> str:
    """The deployment that ``bucket``, the data bucket of ``tenant``, belongs to."""
    return bucket.removesuffix(f"-{tenant}")


def replica_name(role: str, index: int) -> str:
    """``chief-0``, ``ps-1``, ``worker-3``: the prefix in logs and the folder of a log."""
    return f"{role}-{index}"


def step_replica(step: str, index: int | None = None) -> str:
    """The log folder of a step's pod: ``prepare``, ``shard-3``."""
    return step if index is None else f"{step}-{index}"


def namespace(tenant: str) -> str:
    return f"tenant-{tenant}"


def pool(tenant: str) -> str:
    return f"tenant-{tenant}"


def data_bucket(prefix: str, tenant: str) -> str:
    return f"{prefix}-{tenant}"


def models_bucket(prefix: str, tenant: str) -> str:
    return f"{prefix}-{tenant}-models"
