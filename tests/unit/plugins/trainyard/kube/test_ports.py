"""Blocks of ports: claimed by an annotation, verified after creation, never shared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import GangError, RefusedError
from trainyard.kube.ports import PortBlocks
from trainyard.settings.clusters import PortRange

RANGE = PortRange(first=20000, last=20031, block=8)


class Cluster:
    """The chiefs' Jobs of all namespaces."""

    def __init__(self, **claims: int | None) -> None:
        self.jobs = [self.job(uid, first) for uid, first in claims.items()]

    @staticmethod
    def job(uid: str, first: int | None) -> k8s.V1Job:
        annotations = {} if first is None else {names.ANNOTATION_PORTS: str(first)}
        return k8s.V1Job(metadata=k8s.V1ObjectMeta(uid=uid, annotations=annotations))

    def list_job_for_all_namespaces(self, **_: Any) -> Any:
        return SimpleNamespace(items=self.jobs)


def blocks(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> PortBlocks:
    monkeypatch.setattr(k8s, "BatchV1Api", lambda api: cluster)
    return PortBlocks(None, RANGE, choose=min)  # type: ignore[arg-type]


def test_a_block_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert blocks(Cluster(a=20000, b=20016, c=None), monkeypatch).choose(5) == 20008


def test_all_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GangError, match=r"all 4 blocks of 8 ports \(20000–20031\) are taken") as caught:
        blocks(Cluster(a=20000, b=20008, c=20016, d=20024), monkeypatch).choose(5)
    assert not caught.value.final


def test_a_gang_that_is_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="9 replicas needs 9 ports; a block of this cluster has 8"):
        blocks(Cluster(), monkeypatch).choose(9)


def test_of_two_claims_at_once_never_both_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(a=20000, b=20000)
    asked = blocks(cluster, monkeypatch)
    assert [asked.is_mine(job, 20000) for job in cluster.jobs] == [False, False]
    cluster.jobs.pop()
    assert asked.is_mine(cluster.jobs[0], 20000)
