"""Names and labels of tenants, pipelines, versions and runs of any allowed length and letters: valid everywhere, and nobody's twice."""

from __future__ import annotations

import itertools
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import keys, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import labels
from trainyard.settings.base import VERSION_PATTERN
from trainyard.settings.tenants import Slot, Tenant
from trainyard.store.identities import Buckets

DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
AIRFLOW_ID = re.compile(r"[\w.-]{1,250}")

PREFIXES = st.from_regex(r"\A[a-z0-9][a-z0-9-]{1,18}[a-z0-9]\Z")
PIPELINES = st.from_regex(rf"\A{names.NAME_PATTERN.strip('^$')}\Z")
VERSIONS = st.from_regex(rf"\A{VERSION_PATTERN.strip('^$')}\Z")
RUN_IDS = st.text(min_size=1, max_size=250)
GENERATIONS = st.integers(1, 99_999)


def accepted(name: str) -> bool:
    try:
        Tenant(name=name, owner="x", contact="x", slots=1, slot=Slot(cpu="1", memory="1Gi", scratch="1Gi"))
    except ValueError:
        return False
    return True


TENANTS = st.from_regex(rf"\A{names.TENANT_PATTERN.strip('^$')}\Z").filter(accepted)


@settings(max_examples=40, deadline=None)
@given(st.lists(TENANTS, unique=True, min_size=2, max_size=6), PREFIXES)
def test_no_two_tenants_share_anything(tenants: list[str], prefix: str) -> None:
    namespaces = [names.namespace(tenant) for tenant in tenants]
    # A name beside one that only adds to it: `vision` and `vision-x`.
    buckets = [bucket for tenant in tenants for bucket in vars(Buckets.of(prefix, tenant)).values()]
    users = [f"{prefix}-upkeep", *(f"{prefix}-{tenant}-{part}" for tenant in tenants for part in ("run", "export"))]
    for found in (namespaces, buckets, users, [names.pool(tenant) for tenant in tenants]):
        assert len(set(found)) == len(found)
    assert all(DNS_LABEL.fullmatch(namespace) for namespace in namespaces)
    assert all(BUCKET.fullmatch(bucket) for bucket in buckets)
    assert not {names.PLATFORM_NAMESPACE, names.SYSTEM_NAMESPACE, "default", "kube-system"} & set(namespaces)
    assert not {names.PLATFORM_POOL, "default_pool"} & {names.pool(tenant) for tenant in tenants}


@settings(max_examples=40, deadline=None)
@given(TENANTS, st.sampled_from(["-models", "-run", "-export", "-m", "-1"]), PREFIXES)
def test_a_name_that_adds_to_another_does_not_reach_into_it(tenant: str, suffix: str, prefix: str) -> None:
    other = f"{tenant}{suffix}"
    if len(other) > 30 or not accepted(other):
        assert len(other) > 30 or suffix == "-models"
        return
    assert not set(vars(Buckets.of(prefix, tenant)).values()) & set(vars(Buckets.of(prefix, other)).values())
    users = [f"{prefix}-{one}-{part}" for one in (tenant, other) for part in ("run", "export")]
    assert len(set(users)) == 4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TENANTS, PIPELINES), unique=True, min_size=2, max_size=6))
def test_no_two_pipelines_share_a_dag(both: list[tuple[str, str]]) -> None:
    """`train_a_b-c` and `train_a-b_c` would be one if a name could hold an underscore."""
    found = [names.dag_id(tenant, pipeline) for tenant, pipeline in both]
    assert len(set(found)) == len(found)
    assert all(AIRFLOW_ID.fullmatch(dag_id) for dag_id in found)


@settings(max_examples=40, deadline=None)
@given(TENANTS, PIPELINES, st.lists(RUN_IDS, unique=True, min_size=2, max_size=4), GENERATIONS)
def test_no_two_runs_share_a_name_and_all_of_a_run_are_names(tenant: str, pipeline: str, run_ids: list[str], generation: int) -> None:
    dag_id = names.dag_id(tenant, pipeline)
    runs = [names.run_name(pipeline, dag_id, run_id) for run_id in run_ids]
    assert len(set(runs)) == len(runs)
    made = []
    for run in runs:
        made += [names.gang_name(run, generation), names.gang_name(run, generation + 1)]
        made += [names.job_name(run, generation, role) for role in names.ROLES]
        made += [f"{run}-{names.step_replica(step)}" for step in ("prepare", "plan", "evaluate", "gate", "export", "clean-up")]
        made += [f"{run}-{names.step_replica('shard', index)}" for index in (0, 999)]
    assert len(set(made)) == len(made)
    # What Kubernetes adds to a Job's name: an index of up to four digits for a host name, five letters more for a pod.
    assert all(DNS_LABEL.fullmatch(name) for name in [*made, *(f"{name}-9999-abcde" for name in made if f"-g{generation}" in name)])


@settings(max_examples=40, deadline=None)
@given(TENANTS, PIPELINES, RUN_IDS, GENERATIONS)
def test_labels_are_valid(tenant: str, pipeline: str, run_id: str, generation: int) -> None:
    run = names.run_name(pipeline, names.dag_id(tenant, pipeline), run_id)
    spec = RunSpec.model_validate(run_spec_document(run=run, tenant=tenant, pipeline=pipeline, run_id=run_id))
    for found in (labels.gang_labels(spec, generation, "worker"), labels.step_labels(spec, names.STEP_CLEAN_UP)):
        assert all(LABEL_VALUE.fullmatch(value) for value in found.values()), found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PIPELINES, VERSIONS), unique=True, min_size=2, max_size=5), st.just("0123456789abcdef"))
def test_no_dataset_version_lies_in_another(both: list[tuple[str, str]], layout: str) -> None:
    roots = [keys.dataset_root(dataset, version, layout) for dataset, version in both]
    assert not any(a.startswith(b) for a, b in itertools.permutations(roots, 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(PIPELINES, unique=True, min_size=2, max_size=5), st.integers(1, 10**6))
def test_no_model_lies_in_another(models: list[str], version: int) -> None:
    """A model called `claims`, or like another's version, is a folder of its own all the same."""
    folders = [keys.model_version(model, version) for model in models]
    everything = [*folders, *(keys.champion(model) for model in models), *(keys.model_claim(model, version) for model in models)]
    assert len(set(everything)) == len(everything)
    assert not any(one.startswith(folder) for folder in folders for one in everything if one != folder)
