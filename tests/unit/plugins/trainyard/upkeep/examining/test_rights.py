"""Every verb is asked for, of the right resource in the right place; and the table is what deploy/rbac gives."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from tests.unit.plugins.trainyard.upkeep.examining.conftest import CHECKOUT, ApiServer, on
from trainyard.contract import names
from trainyard.settings import Settings
from trainyard.upkeep.examining import rights
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.examining.rights import Rule

SELF = ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
OTHER = ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")


def refuse(server: ApiServer, *refused: tuple[str, str, str], where: tuple[str, str] = SELF) -> None:
    """Allow all but these: verb, resource with subresource, namespace ("*": in every one)."""

    def answer(body: Any) -> tuple[int, Any]:
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        hit = any((verb, what) == (asked["verb"], resource) and place in ("*", asked["namespace"]) for verb, what, place in refused)
        return 201, {"spec": body["spec"], "status": {"allowed": not hit}}

    server.answers[where] = answer


def there(server: ApiServer, *namespaces: str) -> None:
    server.has("/api/v1/namespaces", *({"metadata": {"name": name}} for name in namespaces))


def test_an_identity_that_cannot_examine_is_told_what_it_lacks(api_server: ApiServer, patient: Patient) -> None:
    refuse(api_server, ("create", "namespaces", "*"), ("delete", "namespaces", "*"), ("get", "pods/log", "*"))
    (finding,) = rights.ours(patient)
    assert finding.state == "failed"
    assert finding.saw == "this identity may not create, delete namespaces; get pods/log in all namespaces"
    assert "--kubeconfig" in finding.todo
    refuse(api_server)
    (finding,) = rights.ours(patient)
    assert finding.state == "ok"


def test_a_right_that_airflow_lacks_in_one_tenant_is_named_with_the_place(api_server: ApiServer, settings: Settings) -> None:
    there(api_server, "default", "tenant-vision", "tenant-tabular", names.PLATFORM_NAMESPACE)
    refuse(api_server, ("patch", "pods/status", "tenant-vision"), ("list", "events", names.PLATFORM_NAMESPACE))
    dns = on(settings, addressing="dns", port=2222, ports=None)
    (finding,) = rights.airflow(Patient(dns))
    assert finding.state == "failed"
    assert f"may not patch pods/status in tenant-vision, nor list events in {names.PLATFORM_NAMESPACE}" in finding.saw
    assert "deploy/rbac" in finding.todo
    asked = [body["spec"]["resourceAttributes"] for _, path, body in api_server.asked if path == SELF[1]]
    assert {request["namespace"] for request in asked} == {"tenant-vision", "tenant-tabular", names.PLATFORM_NAMESPACE}


def test_where_gangs_share_ports_airflow_looks_into_all_namespaces(api_server: ApiServer, patient: Patient) -> None:
    there(api_server, "tenant-vision")
    refuse(api_server, ("list", "jobs", ""))
    (finding,) = rights.airflow(patient)
    assert (finding.state, "list jobs in all namespaces" in finding.saw) == ("failed", True)


def test_airflow_in_the_cluster_is_asked_about_by_its_name(api_server: ApiServer, settings: Settings) -> None:
    there(api_server, "tenant-vision")
    refuse(api_server, ("delete", "jobs", "*"), where=OTHER)
    inside = Patient(on(settings, kubeconfig=None), kubeconfig=settings.cluster.kubeconfig)
    (finding,) = rights.airflow(inside)
    assert (finding.state, "may not delete jobs in tenant-vision" in finding.saw) == ("failed", True)
    users = {body["spec"]["user"] for _, path, body in api_server.asked if path == OTHER[1]}
    assert users == {"system:serviceaccount:trainyard-system:trainyard-run"}


def test_two_kubeconfigs_are_two_identities(api_server: ApiServer, settings: Settings, tmp_path: Path) -> None:
    there(api_server, "tenant-vision")
    refuse(api_server)
    admin = tmp_path / "admin"
    admin.write_text(Path(str(settings.cluster.kubeconfig)).read_text().replace("a-token", "the-administrator"))
    both = Patient(settings, kubeconfig=str(admin))
    assert both.api.configuration.api_key != both.airflow_api.configuration.api_key
    (finding,) = rights.airflow(both)
    assert (finding.state, str(settings.cluster.kubeconfig) in finding.saw) == ("ok", True)


def test_before_a_sync_there_is_nothing_to_ask_about(api_server: ApiServer, patient: Patient) -> None:
    there(api_server, "default", "kube-system")
    refuse(api_server, ("create", "pods", "*"))
    (finding,) = rights.airflow(patient)
    assert finding.state == "not_applicable"


class TestTheTableAndTheManifests:
    """deploy/rbac gives what the table asks for; tests/contract compares the manifests with the calls that the code makes."""

    def rules(self, file: str, kind: str) -> set[tuple[str, str, str]]:
        found = set()
        for manifest in yaml.safe_load_all((CHECKOUT / "deploy" / "rbac" / file).read_text()):
            if manifest["kind"] == kind and manifest["metadata"]["name"].startswith(names.SERVICE_ACCOUNT_RUN):
                found |= {
                    (group, resource, verb)
                    for rule in manifest["rules"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
        return found

    @staticmethod
    def flat(rules: tuple[Rule, ...]) -> set[tuple[str, str, str]]:
        return {(rule.group, rule.resource, verb) for rule in rules for verb in dataclasses.asdict(rule)["verbs"]}

    def test_in_a_tenant(self) -> None:
        assert self.flat(rights.IN_A_TENANT) == self.rules("run.yaml", "ClusterRole")

    def test_in_the_platform(self) -> None:
        assert self.flat(rights.IN_THE_PLATFORM) == self.rules("run.yaml", "Role")

    def test_everywhere(self) -> None:
        assert self.flat(rights.EVERYWHERE) == self.rules("optional/ports.yaml", "ClusterRole")
