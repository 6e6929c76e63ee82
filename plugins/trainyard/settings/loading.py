"""A folder of YAML into :class:`Settings`: everything checked, all problems in one error. No network, no Airflow, no Kubernetes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from trainyard.errors import ConfigError
from trainyard.settings.checks import check_dataset, check_members, check_pipeline
from trainyard.settings.clusters import ClusterProfile
from trainyard.settings.datasets import Dataset
from trainyard.settings.pipelines import Pipeline
from trainyard.settings.reading import Document, Problem, did_you_mean, read_document, validate
from trainyard.settings.tenants import Tenant

CONFIG_VARIABLE: Final = "TRAINYARD_CONFIG"
CLUSTER_VARIABLE: Final = "TRAINYARD_CLUSTER"
KUBECONFIG_VARIABLE: Final = "TRAINYARD_KUBECONFIG"
SYNC_KUBECONFIG_VARIABLE: Final = "TRAINYARD_SYNC_KUBECONFIG"
S3_ENDPOINT_VARIABLE: Final = "TRAINYARD_S3_ENDPOINT"
DEFAULT_CLUSTER: Final = "embedded"
FOLDERS: Final = ("tenants", "datasets", "pipelines", "clusters")
"""All that YAML is read from."""
SCHEMAS: Final = "schemas"
_TENANT_LINE: Final = re.compile(r"^tenant:[ \t]*(.*?)(?:[ \t]+#.*)?[ \t]*\r?$", flags=re.MULTILINE)

M = TypeVar("M", bound=BaseModel)
Complete = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Settings:
    """All of a configuration folder that is in order, and the cluster profile in use."""

    config_dir: Path
    tenants: Mapping[str, Tenant]
    datasets: Mapping[str, Dataset]
    pipelines: Mapping[str, Pipeline]
    cluster: ClusterProfile

    def pipelines_of(self, tenant: str) -> tuple[Pipeline, ...]:
        """The tenant's pipelines, by name."""
        return tuple(pipeline for pipeline in self.pipelines.values() if pipeline.tenant == tenant)

    def tenant_of(self, pipeline: Pipeline) -> Tenant:
        return self.tenants[pipeline.tenant]

    def dataset_of(self, pipeline: Pipeline) -> Dataset:
        return self.datasets[pipeline.dataset]


@dataclass(frozen=True)
class TenantView:
    """What one tenant's DAGs are made from: the good part, and what is wrong with the rest of the tenant's files."""

    settings: Settings
    """With this tenant only, its usable pipelines, and the datasets they name."""
    problems: tuple[str, ...]
    """Lines as in :class:`ConfigError`, about this tenant's files or files nobody can be named for. Others' problems are not here."""


@dataclass
class _Kind(Generic[M]):
    """One folder: the models that are good, and the documents of all that are YAML."""

    folder: str
    model: type[M]
    good: dict[str, M] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def read(
        self, config_dir: Path, only: str | None = None, complete: Complete = dict, passed_over: Callable[[Path], bool] = lambda path: False
    ) -> None:
        """Every file of the folder but those that are ``passed_over``; ``complete`` adds to a file's content what others give it."""
        folder = config_dir / self.folder
        for path in sorted(folder.glob("*.y*ml")) if folder.is_dir() else ():
            file = f"{config_dir.name}/{self.folder}/{path.name}"
            if path.suffix != ".yaml":
                self.problems.append(Problem(file, None, "", None, "must end in .yaml: rename the file"))
            elif (only is None or path.stem == only) and not passed_over(path):
                self._read_file(path, file, complete)

    def _read_file(self, path: Path, file: str, complete: Complete) -> None:
        name = path.stem
        self.names.append(name)
        document, problems = read_document(path, file)
        self.problems += problems
        if document is None:
            return
        self.documents[name] = document
        value, problems = validate(self.model, document, name, complete)
        self.problems += problems
        if value is not None:
            self.good[name] = value

    def named(self) -> dict[str, M | None]:
        """Every file by name; None stands for one that is wrong."""
        return {name: self.good.get(name) for name in self.names}


@dataclass
class _Folder:
    """A configuration folder, read."""

    config_dir: Path
    tenants: _Kind[Tenant] = field(default_factory=lambda: _Kind("tenants", Tenant))
    datasets: _Kind[Dataset] = field(default_factory=lambda: _Kind("datasets", Dataset))
    pipelines: _Kind[Pipeline] = field(default_factory=lambda: _Kind("pipelines", Pipeline))
    cluster: ClusterProfile | None = None
    problems: list[Problem] = field(default_factory=list)
    """Of the folder as a whole and of the cluster profiles."""
    strays: list[Problem] = field(default_factory=list)
    """YAML in places that nothing is read from: told, but no reason to take anybody's DAGs away."""

    def all_problems(self) -> Iterable[Problem]:
        yield from self.problems
        yield from self.strays
        for kind in (self.tenants, self.datasets, self.pipelines):
            yield from kind.problems

    def with_defaults(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """A pipeline file's content, completed by its tenant's ``defaults``."""
        named = data.get("tenant")
        tenant = self.tenants.good.get(named) if isinstance(named, str) else None
        return data if tenant is None else tenant.defaults.beneath(data)

    def settings(self, cluster: ClusterProfile) -> Settings:
        return Settings(
            self.config_dir,
            MappingProxyType(self.tenants.good),
            MappingProxyType(self.datasets.good),
            MappingProxyType(self.pipelines.good),
            cluster,
        )


def load(config_dir: Path | str | None = None, *, cluster: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The whole configuration, or one error with all that is wrong in it.

    Args:
        config_dir: the folder; without it TRAINYARD_CONFIG names it.
        cluster: name of the profile; without it TRAINYARD_CLUSTER, else ``embedded``.
        environ: where variables are looked up; the process' own by default.

    Raises:
        ConfigError: every problem of every file, one a line.
    """
    folder = _read(config_dir, cluster, environ, every_profile=True)
    problems = [str(problem) for problem in folder.all_problems()]
    if problems or folder.cluster is None:
        raise ConfigError(problems)
    return folder.settings(folder.cluster)


def load_tenant(
    tenant: str, config_dir: Path | str | None = None, *, cluster: str | None = None, environ: Mapping[str, str] | None = None
) -> TenantView:
    """What ``tenant``'s DAGs can be made from, even if other files, or some of its own, are wrong.

    Raises:
        ConfigError: the tenant's own file or the cluster profile cannot be used: there is nothing to make a DAG from.
    """
    folder = _read(config_dir, cluster, environ, every_profile=False, tenant=tenant)
    if tenant not in folder.tenants.names:
        raise ConfigError(f"{folder.config_dir.name}/tenants/{tenant}.yaml: does not exist; {did_you_mean(tenant, folder.tenants.names)}")
    own_file = f"{folder.config_dir.name}/tenants/{tenant}.yaml"
    own = [problem for problem in folder.tenants.problems if problem.file == own_file]
    if folder.problems or folder.cluster is None or tenant not in folder.tenants.good:
        raise ConfigError([str(problem) for problem in (*folder.problems, *own)])
    mine = {name: pipeline for name, pipeline in folder.pipelines.good.items() if pipeline.tenant == tenant}
    used = {pipeline.dataset for pipeline in mine.values()} | set(_datasets_of_broken(folder, tenant))
    problems = own + folder.strays + [p for p in folder.pipelines.problems if _concerns(p, folder, tenant)]
    problems += [p for p in folder.datasets.problems if Path(p.file).stem in used]
    usable = {name: pipeline for name, pipeline in mine.items() if pipeline.dataset in folder.datasets.good}
    view = replace(
        folder.settings(folder.cluster),
        tenants=MappingProxyType({tenant: folder.tenants.good[tenant]}),
        datasets=MappingProxyType({p.dataset: folder.datasets.good[p.dataset] for p in usable.values()}),
        pipelines=MappingProxyType(usable),
    )
    return TenantView(view, tuple(str(problem) for problem in problems))


def _concerns(problem: Problem, folder: _Folder, tenant: str) -> bool:
    """Whether a pipeline file's problem is ``tenant``'s, or nobody's (then everyone sees it)."""
    named = _tenant_named_in(folder, problem.file)
    return named == tenant or named not in folder.tenants.names


def _names_one_of(path: Path, tenants: frozenset[str]) -> bool:
    """Whether a pipeline's file says in one plain line, and nowhere else, that it is one of these tenants'.

    Each bundle of many tenants reads the whole folder, and parsing what it has no use for was nine tenths of that (benchmarks/scale.py).
    What is written otherwise is parsed.
    """
    if not tenants:
        return False
    try:
        lines = _TENANT_LINE.findall(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False
    return len(lines) == 1 and lines[0].strip("\"'") in tenants


def _tenant_named_in(folder: _Folder, file: str) -> str | None:
    document = folder.pipelines.documents.get(Path(file).stem)
    if document is not None:
        named = document.data.get("tenant")
        return named if isinstance(named, str) else None
    # Not even YAML: the line is nearly always there all the same.
    try:
        text = (folder.config_dir / "pipelines" / Path(file).name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^tenant:\s*[\"']?([a-z0-9-]+)", text, flags=re.MULTILINE)
    return match[1] if match else None


def _datasets_of_broken(folder: _Folder, tenant: str) -> Iterable[str]:
    for name, document in folder.pipelines.documents.items():
        if name not in folder.pipelines.good and document.data.get("tenant") == tenant:
            yield str(document.data.get("dataset"))


def _read(
    config_dir: Path | str | None,
    cluster: str | None,
    environ: Mapping[str, str] | None,
    *,
    every_profile: bool,
    tenant: str | None = None,
) -> _Folder:
    """The folder; with ``tenant``, without the pipelines that are plainly another's."""
    environ = os.environ if environ is None else environ
    folder = _Folder(find_config(config_dir, environ))
    _read_cluster(folder, cluster or environ.get(CLUSTER_VARIABLE) or DEFAULT_CLUSTER, environ, every_profile=every_profile)
    folder.strays += _strays(folder.config_dir)
    folder.tenants.read(folder.config_dir)
    folder.datasets.read(folder.config_dir)
    others = frozenset(folder.tenants.names) - {tenant} if tenant in folder.tenants.names else frozenset[str]()
    folder.pipelines.read(folder.config_dir, complete=folder.with_defaults, passed_over=lambda path: _names_one_of(path, others))
    # Tenants stay usable: whose file is the wrong one nobody can tell.
    folder.tenants.problems += check_members(folder.tenants.good, folder.tenants.documents)
    for name, dataset in list(folder.datasets.good.items()):
        found = list(check_dataset(dataset, folder.datasets.documents[name]))
        folder.datasets.problems += found
        if found:
            del folder.datasets.good[name]
    tenants, datasets = folder.tenants.named(), folder.datasets.named()
    for name, pipeline in list(folder.pipelines.good.items()):
        document = folder.pipelines.documents[name]
        found = list(check_pipeline(pipeline, document, tenants=tenants, datasets=datasets, cluster=folder.cluster))
        folder.pipelines.problems += found
        if found:
            del folder.pipelines.good[name]
    return folder


def _strays(config_dir: Path) -> Iterable[Problem]:
    """YAML that nobody reads: beside the folders, in one of another name (``pipeline/``), or a level too deep.

    Hidden names are passed over: a mounted ConfigMap keeps its versions in such.
    """
    for path in _listed(config_dir):
        file = f"{config_dir.name}/{path.name}"
        if path.is_dir() and path.name in FOLDERS:
            for below in _listed(path):
                if below.is_dir() and _holds_yaml(below):
                    yield Problem(f"{file}/{below.name}/", None, "", None, f"is not read: put its files into {file}/ itself")
        elif path.is_dir() and path.name != SCHEMAS and _holds_yaml(path):
            yield Problem(f"{file}/", None, "", None, f"is not read: unknown folder; {did_you_mean(path.name, FOLDERS)}")
        elif path.is_file() and path.suffix in (".yaml", ".yml"):
            yield Problem(file, None, "", None, f"is not read: put it into one of {', '.join(f'{folder}/' for folder in FOLDERS)}")


def _holds_yaml(folder: Path) -> bool:
    return any(path.suffix in (".yaml", ".yml") for path in _listed(folder))


def _listed(folder: Path) -> list[Path]:
    """By name, without hidden ones; nothing of a folder that may not be listed, such as a volume's ``lost+found``."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def find_config(config_dir: Path | str | None, environ: Mapping[str, str]) -> Path:
    """The configuration folder.

    Raises:
        ConfigError: none is named, or what is named is no folder.
    """
    named = config_dir or environ.get(CONFIG_VARIABLE)
    if not named:
        raise ConfigError(f"no configuration folder is named: set {CONFIG_VARIABLE}, or make one by `trainyard init DIR`")
    path = Path(named).resolve()
    if not path.is_dir():
        raise ConfigError(f"{named}: is not a folder: set {CONFIG_VARIABLE} to the folder that holds tenants/, datasets/ and pipelines/")
    return path


def _read_cluster(folder: _Folder, name: str, environ: Mapping[str, str], *, every_profile: bool) -> None:
    kind = _Kind("clusters", ClusterProfile)
    kind.read(folder.config_dir, None if every_profile else name)
    folder.problems += kind.problems
    known = [path.stem for path in (folder.config_dir / "clusters").glob("*.yaml")]
    if name not in known:
        file = f"{folder.config_dir.name}/clusters/{name}.yaml"
        folder.problems.append(Problem(file, None, "", None, f"does not exist ({CLUSTER_VARIABLE}); {did_you_mean(name, known)}"))
    profile = kind.good.get(name)
    if profile is None:
        return
    if profile.s3.ca_bundle is not None:
        bundle = folder.config_dir / "clusters" / profile.s3.ca_bundle
        if (wrong := _not_certificates(bundle)) is not None:
            folder.problems.append(kind.documents[name].problem(("s3", "ca_bundle"), f"{bundle}: {wrong}"))
            return
        profile = profile.model_copy(update={"s3": profile.s3.model_copy(update={"ca_bundle": str(bundle)})})
    overrides: dict[str, object] = {}
    if environ.get(KUBECONFIG_VARIABLE):
        overrides["kubeconfig"] = environ[KUBECONFIG_VARIABLE]
    # Who names a kubeconfig for this process means it for sync too.
    if named := environ.get(SYNC_KUBECONFIG_VARIABLE) or environ.get(KUBECONFIG_VARIABLE):
        overrides["sync_kubeconfig"] = named
    if environ.get(S3_ENDPOINT_VARIABLE):
        overrides["s3"] = profile.s3.model_copy(update={"endpoint": environ[S3_ENDPOINT_VARIABLE]})
    folder.cluster = profile.model_copy(update=overrides)


def _not_certificates(path: Path) -> str | None:
    """None, or why the file cannot be a bundle of authorities. Only the form is looked at: whom to trust is the administrator's."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        return f"cannot be read ({reason}): name a PEM file, relative to clusters/"
    if "-----BEGIN CERTIFICATE-----" not in text:
        return "holds no certificate: it must be PEM (-----BEGIN CERTIFICATE-----)"
    if "PRIVATE KEY-----" in text:
        return "holds a private key, and pods would get it: leave only the certificates of the authorities"
    return None
