"""What an operator needs of its run: the configuration, the tenant's bucket and the spec that ``check`` wrote."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trainyard.contract import keys, names
from trainyard.contract.run_spec import RunSpec
from trainyard.errors import ConfigError, NotFoundError
from trainyard.settings import Settings, load_tenant
from trainyard.store import Store, store_for

if TYPE_CHECKING:
    from airflow.sdk import Context


def run_of(context: Context, pipeline: str) -> str:
    """The run's short name. Its identity is (dag_id, run_id): a run for a partition has no logical date."""
    dag_run: Any = context["dag_run"]
    return names.run_name(pipeline, dag_run.dag_id, dag_run.run_id)


def spec_digest(spec: RunSpec) -> str:
    """SHA-256 of the document as pods get it."""
    return hashlib.sha256(spec.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class RunAccess:
    """One run, opened."""

    settings: Settings
    store: Store
    spec: RunSpec

    @property
    def spec_sha256(self) -> str:
        """Identity of what is to be done: a gang made for another spec is not ours."""
        return spec_digest(self.spec)

    @property
    def namespace(self) -> str:
        """The tenant's namespace."""
        return names.namespace(self.spec.tenant)


def read_spec(store: Store, run: str) -> RunSpec | None:
    """The run's spec, or None before ``check`` has passed.

    Raises:
        ConfigError: what lies there is no run spec that this release understands.
    """
    document = store.get_json(keys.spec(run))
    if document is None:
        return None
    try:
        return RunSpec.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"s3://{store.bucket}/{keys.spec(run)} is no run spec of this release ({problems}): start a new run") from error


def open_run(tenant: str, run: str) -> RunAccess:
    """Configuration, bucket and spec of a run.

    Raises:
        ConfigError: the tenant's configuration cannot be used.
        NotFoundError: the run has no spec.
        UnavailableError: S3 does not answer.
    """
    settings = load_tenant(tenant).settings
    store = store_for(settings, tenant)
    spec = read_spec(store, run)
    if spec is None:
        where = f"s3://{store.bucket}/{keys.spec(run)}"
        raise NotFoundError(f"{where} does not exist: the run's `check` has not passed, so there is nothing to do")
    return RunAccess(settings, store, spec)
