"""``docs/guides/configuration.md`` names every key there is, and its samples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from trainyard.settings import ClusterProfile, Dataset, Pipeline, Tenant
from trainyard.settings.reading import read_document, validate

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "configuration.md").read_text(encoding="utf-8")
CLUSTERS = Path(__file__).parents[2] / "docs" / "guides" / "clusters.md"
SECTIONS: dict[str, type[BaseModel]] = {"Tenants": Tenant, "Datasets": Dataset, "Pipelines": Pipeline, "Clusters": ClusterProfile}


def section(title: str) -> str:
    match = re.search(rf"^## {title}\n(.*?)(?=^## )", GUIDE, flags=re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every key of a file, dotted; parts of a mapping that is written as one are with it."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found |= keys(annotation, f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_is_explained(title: str) -> None:
    named = set(re.findall(r"`([a-z0-9_.]+)`", section(title)))
    # `slot` and `images` are explained in one row with the names of their parts.
    missing = {key for key in keys(SECTIONS[title]) if key not in named and key.rsplit(".", 1)[-1] not in named}
    assert missing == set()


def test_the_clusters_guides_sample_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", CLUSTERS.read_text(encoding="utf-8"), flags=re.DOTALL)
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    document, problems = read_document(path, "site.yaml")
    assert document is not None, problems
    assert validate(ClusterProfile, document, "site")[1] == []


@pytest.mark.parametrize("title", ["Tenants", "Datasets", "Pipelines"])
def test_the_sample_is_valid(title: str, tmp_path: Path) -> None:
    match = re.search(r"```yaml\n(.*?)```", section(title), flags=re.DOTALL)
    assert match is not None
    assert yaml.safe_load(match[1])
    path = tmp_path / "sample.yaml"
    path.write_text(match[1], encoding="utf-8")
    document, problems = read_document(path, "sample.yaml")
    assert document is not None, problems
    value, problems = validate(SECTIONS[title], document, "sample")
    assert (value is not None, problems) == (True, [])
