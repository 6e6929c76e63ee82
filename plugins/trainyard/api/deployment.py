"""The deployment that this server serves: its configuration, and from a DAG's id to the pipeline, tenant and buckets behind it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from trainyard.contract import names
from trainyard.errors import ConfigError, NotFoundError
from trainyard.settings import Pipeline, Settings, load, load_tenant
from trainyard.settings.loading import find_config
from trainyard.store import Store, models_store_for, store_for


@dataclass(frozen=True)
class Target:
    """A pipeline that a request names, and that Airflow says belongs to that tenant."""

    pipeline: Pipeline
    settings: Settings

    @property
    def tenant(self) -> str:
        return self.pipeline.tenant

    @property
    def dag_id(self) -> str:
        return names.dag_id(self.tenant, self.pipeline.name)

    @property
    def data(self) -> Store:
        """The tenant's data bucket, with the deployment's own S3 identity."""
        return store_for(self.settings, self.tenant)

    @property
    def models(self) -> Store:
        """The tenant's models bucket, with the deployment's own S3 identity."""
        return models_store_for(self.settings, self.tenant)

    def run_name(self, run_id: str) -> str:
        return names.run_name(self.pipeline.name, self.dag_id, run_id)


@dataclass(frozen=True)
class _Configuration:
    targets: dict[str, Target]
    problems: dict[str, tuple[str, ...]]
    tenants: dict[str, Settings]


class Deployment:
    """The configuration folder, read again when a file of it has changed; one tenant's mistake takes nothing from the others."""

    def __init__(
        self, config_dir: Path | str | None = None, *, owner: Callable[[str], str | None], teams_in_use: Callable[[], bool]
    ) -> None:
        self._config_dir = config_dir
        self._owner = owner
        self._teams_in_use = teams_in_use
        self._lock = threading.Lock()
        self._read: tuple[object, _Configuration] = (None, _Configuration({}, {}, {}))

    def targets(self) -> dict[str, Target]:
        """Every usable pipeline by its DAG's id, whoever may see it.

        Raises:
            ConfigError: the folder or the cluster profile cannot be used at all.
        """
        return self._configuration().targets

    def problems(self) -> dict[str, tuple[str, ...]]:
        """By tenant, what is wrong with its files, if anything: such a pipeline is not there.

        Raises:
            ConfigError: as :meth:`targets`.
        """
        return self._configuration().problems

    def tenants(self) -> dict[str, Settings]:
        """Every tenant whose file can be used, and the configuration that it stands in.

        Raises:
            ConfigError: as :meth:`targets`.
        """
        return self._configuration().tenants

    def _configuration(self) -> _Configuration:
        folder = find_config(self._config_dir, os.environ)
        files = tuple(sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in folder.glob("*/*.y*ml")))
        with self._lock:
            if self._read[0] != files:
                self._read = (files, _read_configuration(folder))
            return self._read[1]

    def target(self, dag_id: str) -> Target:
        """The pipeline behind a DAG.

        Raises:
            NotFoundError: no such pipeline; or Airflow does not have its DAG in that tenant's bundle, in which case what Airflow
                allows for that id says nothing about the tenant's data.
        """
        target = self.targets().get(dag_id)
        if target is None or (self._teams_in_use() and self._owner(dag_id) != target.tenant):
            raise NotFoundError(f"no pipeline behind the DAG `{dag_id}`")
        return target

    def visible(self, dag_ids: Collection[str]) -> list[Target]:
        """The pipelines among ``dag_ids`` (what a person may see), by tenant and name."""
        found = [
            t for dag_id, t in self.targets().items() if dag_id in dag_ids and (not self._teams_in_use() or self._owner(dag_id) == t.tenant)
        ]
        return sorted(found, key=lambda t: (t.tenant, t.pipeline.name))


def _read_configuration(folder: Path) -> _Configuration:
    try:
        settings = load(folder)
        return _Configuration(_targets(settings), {}, dict.fromkeys(settings.tenants, settings))
    except ConfigError:
        targets: dict[str, Target] = {}
        tenants: dict[str, Settings] = {}
        problems = {}
        for path in sorted((folder / "tenants").glob("*.yaml")):
            try:
                view = load_tenant(path.stem, folder)
            except ConfigError as error:
                problems[path.stem] = error.problems
            else:
                targets |= _targets(view.settings)
                problems[path.stem], tenants[path.stem] = view.problems, view.settings
        if not tenants:
            raise
        return _Configuration(targets, problems, tenants)


def _targets(settings: Settings) -> dict[str, Target]:
    found = [Target(pipeline, settings) for pipeline in settings.pipelines.values()]
    return {target.dag_id: target for target in found}
