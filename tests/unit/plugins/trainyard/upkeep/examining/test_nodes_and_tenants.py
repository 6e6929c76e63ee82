"""What Node objects and quotas say against the profile and the pipelines."""

from __future__ import annotations

from typing import Any

from tests.unit.plugins.trainyard.upkeep.examining.conftest import ApiServer, on
from trainyard.settings import Settings
from trainyard.settings.site_pods import SitePods
from trainyard.upkeep.examining import nodes, tenants
from trainyard.upkeep.examining.finding import Finding
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.objects import resource_quota


def one(findings: Any) -> Finding:
    (finding,) = findings
    return finding


def node(name: str, **allocatable: str) -> dict[str, Any]:
    offered = {key.replace("_", "-"): value for key, value in ({"cpu": "8", "memory": "32Gi"} | allocatable).items()}
    return {"metadata": {"name": name}, "status": {"allocatable": offered}}


class TestScratch:
    def test_counted_where_no_node_reports_it(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/nodes", node("a"), node("b", ephemeral_storage="0"))
        finding = one(nodes.scratch(patient))
        assert finding.state == "failed"
        assert finding.saw.startswith("no node reports ephemeral-storage, and pods ask for it")
        assert finding.todo == "clusters/embedded.yaml: counts_scratch: false"
        assert patient.counts_scratch is False

    def test_counted_where_one_node_does_not(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/nodes", node("a", ephemeral_storage="50Gi"), node("b"))
        finding = one(nodes.scratch(patient))
        assert (finding.state, finding.saw.startswith("b report no ephemeral-storage")) == ("failed", True)
        assert patient.counts_scratch is True

    def test_not_counted_where_all_nodes_do(self, api_server: ApiServer, settings: Settings) -> None:
        api_server.has("/api/v1/nodes", node("a", ephemeral_storage="50Gi"))
        finding = one(nodes.scratch(Patient(on(settings, counts_scratch=False))))
        assert (finding.state, "counts_scratch: true" in finding.todo) == ("warning", True)

    def test_as_they_report_it(self, api_server: ApiServer, settings: Settings) -> None:
        api_server.has("/api/v1/nodes", node("a", ephemeral_storage="50Gi"))
        assert one(nodes.scratch(Patient(settings))).state == "ok"
        api_server.has("/api/v1/nodes", node("a"))
        assert one(nodes.scratch(Patient(on(settings, counts_scratch=False)))).state == "ok"

    def test_a_selector_that_no_node_has(self, api_server: ApiServer, settings: Settings) -> None:
        api_server.has("/api/v1/nodes")
        finding = one(nodes.scratch(Patient(on(settings, pods=SitePods(node_selector={"disk": "fast"})))))
        assert (finding.state, finding.saw) == ("failed", "no node of the cluster has the labels disk=fast")


class TestSize:
    def test_no_node_is_large_enough(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/nodes", node("a", memory="1Gi", ephemeral_storage="50Gi"), node("b", cpu="500m", ephemeral_storage="50Gi"))
        finding = one(nodes.size(patient))
        assert finding.state == "failed"
        assert "a pod of pipeline mnist-cnn (1 slots: cpu 750m, memory 2Gi, ephemeral-storage 2Gi)" in finding.saw
        assert "the most that one offers is cpu 8, memory 32.00Gi" in finding.saw

    def test_one_is(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/nodes", node("a", memory="1Gi"), node("b", ephemeral_storage="50Gi"))
        assert one(nodes.size(patient)).state == "ok"


class TestQuota:
    def quota(self, name: str, **hard: str) -> dict[str, Any]:
        found = {key.replace("_", ".", 1): value for key, value in hard.items()}
        return {"metadata": {"name": name}, "spec": {"hard": found}, "status": {"hard": found, "used": dict.fromkeys(found, "0")}}

    def test_anothers_quota_is_too_small_for_the_largest_gang(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/namespaces", {"metadata": {"name": "tenant-vision"}})
        vision = resource_quota(patient.settings.tenants["vision"])["spec"]["hard"]
        ours = {"metadata": {"name": "tenant"}, "spec": {"hard": vision}, "status": {"hard": vision, "used": {}}}
        path = "/api/v1/namespaces/tenant-vision/resourcequotas"
        api_server.has(path, ours)
        assert one(tenants.room(patient)).state == "ok"
        api_server.has(path, ours, self.quota("company", limits_memory="4Gi", pods="20"))
        finding = one(tenants.room(patient))
        assert finding.state == "failed"
        assert "pipeline mnist-cnn (2 workers × 1 + 2 PS × 1 + chief 1 = 5 slots) in tenant-vision" in finding.saw
        assert "quota company has 4.00Gi of limits.memory, 10.00Gi are needed" in finding.saw
        assert "pods" not in finding.saw

    def test_what_is_used_now_does_not_matter(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/namespaces", {"metadata": {"name": "tenant-vision"}})
        full = self.quota("company", pods="5")
        full["status"]["used"] = {"pods": "5"}
        api_server.has("/api/v1/namespaces/tenant-vision/resourcequotas", full)
        assert one(tenants.room(patient)).state == "ok"

    def test_before_a_sync(self, api_server: ApiServer, patient: Patient) -> None:
        api_server.has("/api/v1/namespaces", {"metadata": {"name": "default"}})
        assert one(tenants.room(patient)).state == "not_applicable"
