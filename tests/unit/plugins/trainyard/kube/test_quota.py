"""Room for a whole gang, and the two refusals that are none."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from kubernetes import client as k8s

from trainyard.kube import quota


def resource_quota(hard: dict[str, str], used: dict[str, str] | None = None, scopes: list[str] | None = None) -> k8s.V1ResourceQuota:
    return k8s.V1ResourceQuota(
        metadata=k8s.V1ObjectMeta(name="tenant"),
        spec=k8s.V1ResourceQuotaSpec(hard=hard, scopes=scopes),
        status=k8s.V1ResourceQuotaStatus(hard=hard, used=used or {}),
    )


POD = {"cpu": "750m", "memory": "2Gi", "ephemeral-storage": "1Gi"}


def test_demand_counts_by_every_name_a_quota_may_use() -> None:
    wanted = quota.demand([POD, POD])
    assert wanted["pods"] == wanted["count/pods"] == 2
    for prefix in ("", "requests.", "limits."):
        assert wanted[f"{prefix}cpu"] == Decimal("1.5")
        assert wanted[f"{prefix}memory"] == 4 * 2**30


@pytest.mark.parametrize(
    ("hard", "used", "short"),
    [
        ({"limits.cpu": "1500m"}, {}, []),
        ({"limits.cpu": "1500m"}, {"limits.cpu": "1m"}, ["limits.cpu"]),
        ({"limits.memory": "4Gi", "requests.memory": "3Gi"}, {}, ["requests.memory"]),
        ({"pods": "3"}, {"pods": "2"}, ["pods"]),
        ({"persistentvolumeclaims": "0"}, {}, []),
    ],
)
def test_shortages(hard: dict[str, str], used: dict[str, str], short: list[str]) -> None:
    found = quota.shortages([resource_quota(hard, used)], quota.demand([POD, POD]))
    assert [s.resource for s in found] == short


def test_a_shortage_says_how_much_and_whether_it_can_ever_pass() -> None:
    (found,) = quota.shortages([resource_quota({"limits.memory": "6Gi"}, {"limits.memory": "4Gi"})], quota.demand([POD, POD]))
    assert str(found) == "quota tenant: limits.memory 4.00Gi needed, 4.00Gi of 6.00Gi used"
    assert not found.never
    (found,) = quota.shortages([resource_quota({"limits.memory": "3Gi"})], quota.demand([POD, POD]))
    assert found.never


def test_a_quota_with_scopes_is_left_to_the_api_server() -> None:
    assert quota.shortages([resource_quota({"pods": "0"}, scopes=["BestEffort"])], quota.demand([POD])) == []


def refusal(status: int, **body: Any) -> k8s.ApiException:
    error = k8s.ApiException(status=status, reason="x")
    error.body = json.dumps(body)
    return error


def test_refusals_are_told_apart() -> None:
    exceeded = refusal(403, reason="Forbidden", message='pods "q" is forbidden: exceeded quota: q, requested: pods=1')
    security = refusal(403, reason="Forbidden", message='pods "b" is forbidden: violates PodSecurity "restricted:latest"')
    conflict = refusal(
        409, reason="Conflict", details={"kind": "resourcequotas"}, message='Operation cannot be fulfilled on resourcequotas "q"'
    )
    exists = refusal(409, reason="AlreadyExists", details={"kind": "pods"}, message='pods "p" already exists')
    table = {name: (quota.is_quota_exceeded(e), quota.is_quota_conflict(e), quota.is_already_exists(e)) for name, e in {
        "exceeded": exceeded, "security": security, "conflict": conflict, "exists": exists, "html": refusal(409),
    }.items()}  # fmt: skip
    assert table == {
        "exceeded": (True, False, False),
        "security": (False, False, False),
        "conflict": (False, True, False),
        "exists": (False, False, True),
        "html": (False, False, False),
    }
