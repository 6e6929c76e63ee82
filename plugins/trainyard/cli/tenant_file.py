"""``trainyard tenant add``: a tenant's file that is in order, with what a person will want to change next as comments in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from trainyard.contract.names import TENANT_PATTERN
from trainyard.errors import ConfigError
from trainyard.settings.checks import check_members
from trainyard.settings.loading import SCHEMAS
from trainyard.settings.reading import Document, Problem, read_document, validate
from trainyard.settings.tenants import Tenant

_SCHEMA_LINE: Final = "# yaml-language-server: $schema=../schemas/tenant.schema.json\n"


@dataclass(frozen=True)
class NewTenant:
    """What the command is told; what it is not told has a value that is good for a first try."""

    name: str
    owner: str
    contact: str
    slots: int = 4
    cpu: str = "750m"
    memory: str = "2Gi"
    scratch: str = "2Gi"
    gpus: int = 0
    members: Mapping[str, str] = field(default_factory=dict)


def write(config_dir: Path, tenant: NewTenant) -> Path:
    """Write ``tenants/<name>.yaml`` and return its path; a file that would be wrong is not left.

    Raises:
        ConfigError: the tenant exists already, or a value cannot be: every problem, one a line.
    """
    if not re.fullmatch(TENANT_PATTERN, tenant.name):  # before it is part of any path
        rule = "use 3–30 lower-case letters, digits and dashes, starting with a letter, ending without a dash"
        raise ConfigError(f"{tenant.name}: is no tenant's name: {rule}")
    path = config_dir / "tenants" / f"{tenant.name}.yaml"
    text = render(tenant, schema=(config_dir / SCHEMAS / "tenant.schema.json").is_file())
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path}: exists already: edit it") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}): is this the configuration's folder?") from None
    problems = _problems(config_dir, path)
    if problems:
        path.unlink()
        raise ConfigError([str(problem) for problem in problems])
    return path


def _problems(config_dir: Path, new: Path) -> list[Problem]:
    """What is wrong with the new file, by itself and beside the other tenants'. What is wrong with those is theirs."""
    tenants: dict[str, Tenant] = {}
    documents: dict[str, Document] = {}
    for path in sorted((config_dir / "tenants").glob("*.yaml"), key=lambda path: path == new):
        document, problems = read_document(path, f"{config_dir.name}/tenants/{path.name}")
        value = None
        if document is not None:
            documents[path.stem] = document
            value, more = validate(Tenant, document, path.stem)
            problems += more
        if value is not None:
            tenants[path.stem] = value
        elif path == new:
            return problems
    own = f"{config_dir.name}/tenants/{new.name}"
    return [problem for problem in check_members(tenants, documents) if problem.file == own]


def render(tenant: NewTenant, *, schema: bool) -> str:
    """The file's text. Values are written by YAML's own rules, so that none of them can be anything but a value."""
    slot = {"cpu": tenant.cpu, "memory": tenant.memory, "scratch": tenant.scratch}
    parts = [
        _SCHEMA_LINE if schema else "",
        _yaml({"owner": tenant.owner, "contact": tenant.contact, "state": "active"}),
        "# One number limits everything: its pods use at most so many slots at once. The smallest gang takes 3 of them.\n",
        _yaml({"slots": tenant.slots}),
        "# What one slot is worth: every pod has requests = limits = its slots × this.\n",
        _yaml({"slot": slot}),
        "# GPUs are counted by themselves; only workers of a pipeline with gang.worker_gpus get any.\n",
        _yaml({"gpus": tenant.gpus}),
        "# Login names in Airflow: `user` starts and stops runs, `viewer` reads.\n",
        _yaml({"members": dict(tenant.members)}),
        "# Without a number, what runs leave in S3 stays for ever.\n",
        _yaml({"retention": {"runs_days": None, "model_versions": None}}),
        "# More in docs/guides/configuration.md: images of its own, defaults that its pipelines' files need not repeat.\n",
    ]
    return "".join(parts)


def _yaml(value: Mapping[str, object]) -> str:
    # Line ends of other alphabets would be read back as spaces: what is not for printing is escaped.
    printable = all(text.isprintable() for text in value.values() if isinstance(text, str))
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=printable, width=10_000)
