"""Clocks that are off, ahead and behind, a little and much."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from tests.unit.plugins.trainyard.upkeep.examining.conftest import ApiServer, on
from trainyard.settings import Settings
from trainyard.upkeep.examining import clocks
from trainyard.upkeep.examining.patient import Patient


@pytest.mark.parametrize(("told", "ahead"), [(100.0, 0.0), (105.0, 0.0), (110.0, 0.0), (112.5, 2.5), (90.0, -10.0)])
def test_skew_is_what_asking_cannot_explain(told: float, ahead: float) -> None:
    assert clocks.skew(told, earliest=100.0, latest=110.0) == ahead


@pytest.mark.parametrize(
    ("seconds", "state"), [(29.0, "ok"), (-31.0, "warning"), (299.0, "warning"), (301.0, "failed"), (-900.0, "failed")]
)
def test_how_much_is_too_much(seconds: float, state: str) -> None:
    (finding,) = clocks.judge({"S3": seconds, "the API server": 0.0})
    assert finding.state == state
    if state != "ok":
        assert f"S3 is {abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}" in finding.saw
        assert "the API server" not in finding.saw
        assert "NTP" in finding.todo


def test_all_off_the_same_way_points_at_ourselves() -> None:
    (finding,) = clocks.judge({"S3": 900.0, "the API server": 901.0})
    assert finding.todo.startswith("all are off the same way: is this machine's own clock right?")


def node(name: str, ready: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def lease(name: str, renewed: float) -> dict[str, Any]:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(renewed)) + ".000000Z"
    return {"metadata": {"name": name}, "spec": {"renewTime": stamp}}


@pytest.fixture
def cluster(api_server: ApiServer) -> ApiServer:
    api_server.version("34")
    api_server.has("/api/v1/nodes", node("near"), node("far"), node("dead", "Unknown"))
    now = time.time()
    leases = (lease("near", now - 9), lease("far", now - 9), lease("dead", now - 4000))
    api_server.has("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", *leases)
    return api_server


def with_s3(settings: Settings, endpoint: str) -> Patient:
    return Patient(on(settings, s3=settings.cluster.s3.model_copy(update={"endpoint": endpoint})))


def test_true_clocks(cluster: ApiServer, settings: Settings, s3_server: S3Server) -> None:
    (finding,) = clocks.servers(with_s3(settings, s3_server.endpoint))
    assert finding.state == "ok"
    assert finding.saw == "within 30 s of ours: the API server, S3, node near, node far"


def test_the_api_servers_clock(cluster: ApiServer, settings: Settings, s3_server: S3Server) -> None:
    cluster.date = formatdate(time.time() - 1200, usegmt=True)
    (finding,) = clocks.servers(with_s3(settings, s3_server.endpoint))
    assert (finding.state, "the API server is 1" in finding.saw, "behind" in finding.saw) == ("failed", True, True)
    assert "S3 is" not in finding.saw


@pytest.mark.parametrize(("off", "word"), [(600.0, "ahead"), (-600.0, "behind")])
def test_one_nodes_clock_by_its_lease(cluster: ApiServer, settings: Settings, s3_server: S3Server, off: float, word: str) -> None:
    leases = (lease("near", time.time() - 9), lease("far", time.time() - 9 + off))
    cluster.has("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", *leases)
    (finding,) = clocks.servers(with_s3(settings, s3_server.endpoint))
    assert finding.state == "failed"
    assert "node far is " in finding.saw
    assert f" s {word}" in finding.saw
    assert "near" not in finding.saw


def test_our_own_clock_is_off(cluster: ApiServer, settings: Settings, s3_server: S3Server) -> None:
    patient = with_s3(settings, s3_server.endpoint)
    patient.now = lambda: time.time() + 3600
    (finding,) = clocks.servers(patient)
    assert finding.state == "failed"
    assert "is this machine's own clock right?" in finding.todo


def test_an_s3_that_is_not_there_is_another_checks(cluster: ApiServer, settings: Settings) -> None:
    (finding,) = clocks.servers(with_s3(settings, "http://127.0.0.1:1"))
    assert (finding.state, "S3" in finding.saw) == ("ok", False)
