"""What a tenant's files may ask for that is not the tenant's: there is no word for it (docs/isolation.md)."""

from __future__ import annotations

import pytest

from tests.unit.plugins.trainyard.settings.conftest import Config

PIPELINE = "pipelines/digits-mlp"


@pytest.mark.parametrize(
    "line",
    [
        "pool: tenant-tabular",
        "pool_slots: 1",
        "queue: other",
        "namespace: tenant-tabular",
        "service_account: trainyard-upkeep",
        "secret: s3-export",
        "bucket: trainyard-tabular",
        "team: tabular",
        "dag_id: train_tabular_digits-own",
        "priority_class_name: system-node-critical",
        "node_selector: {kubernetes.io/hostname: master}",
        "security_context: {privileged: true}",
        "host_network: true",
        "volumes: [{hostPath: {path: /}}]",
        "env: {AWS_ACCESS_KEY_ID: theirs}",
    ],
)
def test_a_pipeline_has_no_word_for_what_is_not_its_own(config: Config, line: str) -> None:
    config.edit(PIPELINE, "tenant: vision\n", f"tenant: vision\n{line}\n")
    assert "unknown key" in config.problem()


@pytest.mark.parametrize("name", ["..", "../tabular", "a/b", "/etc", "tabular\\n", "tabular "])
def test_a_pipeline_names_a_tenant_by_its_name_alone(config: Config, name: str) -> None:
    config.edit(PIPELINE, "tenant: vision\n", f'tenant: "{name}"\n')
    assert any("tenant" in problem for problem in config.problems())


@pytest.mark.parametrize("key", ["dataset: ../../tenants/vision", "export:\n  model: ../champion", "export:\n  model: a/b"])
def test_other_names_climb_nowhere(config: Config, key: str) -> None:
    first = key.split(":")[0]
    old = {"dataset": "dataset: digits\n", "export": "export:\n  model: digits-mlp\n"}[first]
    config.edit(PIPELINE, old, f"{key}\n")
    assert any(first in problem for problem in config.problems())


@pytest.mark.parametrize("stem", ["..", "a..b", ".vision", "vision.b", "vision ", "vision%2f", "tenant_vision", "-vision", "vision-"])
def test_a_tenants_file_name_is_a_name_or_nothing(config: Config, stem: str) -> None:
    """Namespaces, buckets, folders and DAG ids are made of it."""
    config.path("tenants/tabular").rename(config.folder / "tenants" / f"{stem}.yaml")
    assert any("tenants/" in problem for problem in config.problems())
