"""The cluster's side: what is a root, and a list of which only a part came is none."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract.run_spec import RunSpec
from trainyard.errors import UnavailableError
from trainyard.kube import labels
from trainyard.upkeep.reaping.seen import roots

SPEC = RunSpec.model_validate(run_spec_document(storage__bucket="site-vision"))
CREATED = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def thing(name: str, *, owned: bool = False, **metadata: Any) -> Any:
    owner = [k8s.V1OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u")] if owned else None
    told: dict[str, Any] = {"labels": labels.gang_labels(SPEC, 1, "chief"), "annotations": labels.run_annotations(SPEC)}
    meta = k8s.V1ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=CREATED, owner_references=owner, **(told | metadata))
    return SimpleNamespace(metadata=meta)


def cluster(monkeypatch: pytest.MonkeyPatch, jobs: list[Any], pods: list[Any], token: str | None = None) -> list[tuple[str, str]]:
    asked: list[tuple[str, str]] = []

    def answer(items: list[Any], more: str | None) -> Any:
        def call(_: Any, namespace: str, *, label_selector: str, **__: Any) -> Any:
            asked.append((namespace, label_selector))
            return SimpleNamespace(items=items, metadata=k8s.V1ListMeta(_continue=more))

        return call

    monkeypatch.setattr(k8s.BatchV1Api, "list_namespaced_job", answer(jobs, None))
    monkeypatch.setattr(k8s.CoreV1Api, "list_namespaced_pod", answer(pods, token))
    return asked


def test_jobs_and_pods_without_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cluster(monkeypatch, [thing("job")], [thing("job-0", owned=True), thing("lone")])
    found = roots(k8s.ApiClient(k8s.Configuration()), "vision")
    assert [(root.kind, root.name) for root in found] == [("Job", "job"), ("pod", "lone")]
    assert {root.instance for root in found} == {"site"}
    assert {(root.run, root.dag_id, root.run_id) for root in found} == {(SPEC.run, SPEC.dag_id, SPEC.run_id)}
    assert set(asked) == {("tenant-vision", "app.kubernetes.io/managed-by=trainyard")}


def test_what_has_no_labels_of_a_run_is_seen_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, [thing("job", labels=None, annotations=None)], [])
    (found,) = roots(k8s.ApiClient(k8s.Configuration()), "vision")
    assert (found.instance, found.run, found.dag_id, found.run_id) == (None, None, None, None)


def test_half_a_list_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, [thing("job")], [], token="more")
    with pytest.raises(UnavailableError, match="a part of a list only"):
        roots(k8s.ApiClient(k8s.Configuration()), "vision")
