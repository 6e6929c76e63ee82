"""``deploy/rbac`` against the code: every call that an identity's code makes is granted, and nothing is granted that no code calls.

That the code calls nothing else is proved by ``tests/cluster``, which runs it with these identities.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainyard.contract import names
from trainyard.settings import Settings, load
from trainyard.upkeep import objects
from trainyard.upkeep.applying import path_of
from trainyard.upkeep.examining import rights
from trainyard.upkeep.policies import ApiServer, policies
from trainyard.upkeep.storage import identities

CHECKOUT = Path(__file__).parents[2]
RBAC = CHECKOUT / "deploy" / "rbac"
SOURCES = CHECKOUT / "plugins" / "trainyard"

CALL = re.compile(r"^(create|read|list|patch|replace|delete)_(?:namespaced_)?(\w+?)(?:_for_all_namespaces)?$")
VERBS = {"read": "get", "replace": "update"}
KINDS = {
    "pod": ("", "pods"),
    "pod_log": ("", "pods/log"),
    "pod_status": ("", "pods/status"),
    "service": ("", "services"),
    "event": ("", "events"),
    "resource_quota": ("", "resourcequotas"),
    "job": ("batch", "jobs"),
    "network_policy": ("networking.k8s.io", "networkpolicies"),
    "lease": ("coordination.k8s.io", "leases"),
}
"""The client library's names."""
Right = tuple[str, str, str]
"""API group, resource, verb."""


def manifests() -> list[dict[str, Any]]:
    return [m for file in sorted(RBAC.rglob("*.yaml")) for m in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def role(kind: str, name: str) -> set[Right]:
    """What a role grants, one right at a time."""
    (found,) = (m for m in manifests() if (m["kind"], m["metadata"]["name"]) == (kind, name))
    return {
        (group, resource, verb)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def calls(tree: ast.AST) -> Iterator[Right]:
    """The client library's methods that a piece of source names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (match := CALL.match(node.attr)) and match[2] in KINDS:
            yield (*KINDS[match[2]], VERBS.get(match[1], match[1]))


def calls_of(files: Iterable[Path]) -> set[Right]:
    return {right for file in files for right in calls(ast.parse(file.read_text(encoding="utf-8")))}


def providers() -> set[Right]:
    """What Airflow's KubernetesPodOperator calls itself: its one other call, exec, is for XCom, which no pod of ours has."""
    package = importlib.util.find_spec("airflow")  # found, not imported: that takes seconds
    assert package is not None
    (folder,) = package.submodule_search_locations or ()
    provider = Path(folder, "providers", "cncf", "kubernetes")
    return calls_of([provider / "operators" / "pod.py", provider / "utils" / "pod_manager.py"])


def test_run_may_what_the_operators_call_and_nothing_else() -> None:
    ours = calls_of([*(SOURCES / "kube").glob("*.py"), *(SOURCES / "operators").glob("*.py")])
    assert role("ClusterRole", names.SERVICE_ACCOUNT_RUN) == ours | providers()


def test_in_the_platforms_namespace_run_may_start_a_pod_and_nothing_else() -> None:
    assert role("Role", names.SERVICE_ACCOUNT_RUN) == providers()


def test_all_tenants_jobs_are_seen_only_where_ports_are_shared() -> None:
    everywhere = {
        node.attr
        for file in [*(SOURCES / "kube").glob("*.py"), *(SOURCES / "operators").glob("*.py")]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.endswith("_for_all_namespaces")
    }
    assert everywhere == {"list_job_for_all_namespaces"}
    assert role("ClusterRole", "trainyard-run-ports") == {("batch", "jobs", "list")}
    assert (RBAC / "optional" / "ports.yaml").is_file(), "kubectl apply -f deploy/rbac/ must not apply it"


def test_upkeep_may_take_down_and_nothing_else() -> None:
    source = ast.parse((SOURCES / "kube" / "takedown.py").read_text(encoding="utf-8"))
    (takedown,) = (node for node in ast.walk(source) if isinstance(node, ast.ClassDef) and node.name == "Takedown")
    reaper = calls_of((SOURCES / "upkeep" / "reaping").glob("*.py"))
    assert role("ClusterRole", names.SERVICE_ACCOUNT_UPKEEP) == set(calls(takedown)) | reaper


@pytest.fixture
def settings() -> Settings:
    return load(CHECKOUT / "config", environ={})


def test_sync_may_make_what_it_makes_and_nothing_else(settings: Settings) -> None:
    made = objects.platform_objects()
    for tenant in settings.tenants.values():
        made += objects.tenant_objects(tenant, settings.cluster)
        made.append(objects.config_map(names.CONFIG_MAP_CA, names.namespace(tenant.name), {}))
        made += policies(settings, tenant, s3_endpoint=None, api_server=ApiServer())
    made.append(objects.config_map(names.CONFIG_MAP_CA, names.PLATFORM_NAMESPACE, {}))
    made += [objects.secret(identity.secret, identity.namespace, {}) for identity in identities(settings)]
    needed: dict[str, set[Right]] = {"cluster": set(), "platform": set(), "tenant": set()}
    for manifest in made:
        group = manifest["apiVersion"].split("/")[0] if "/" in manifest["apiVersion"] else ""
        namespace, resource = manifest["metadata"].get("namespace"), path_of(manifest).split("/")[-2]
        where = "platform" if namespace == names.PLATFORM_NAMESPACE else "tenant"
        if namespace is None or resource == "rolebindings":  # a binding comes before there are any rights in the namespace
            where = "cluster"
        needed[where] |= {(group, resource, verb) for verb in ("create", "get", "patch")}
    rbac = "rbac.authorization.k8s.io"
    assert role("ClusterRole", names.SERVICE_ACCOUNT_SYNC) == needed["cluster"] | {(rbac, "clusterroles", v) for v in ("bind", "get")}
    # Policies alone are removed too: each of them opens something.
    needed["tenant"] |= {("networking.k8s.io", "networkpolicies", verb) for verb in ("list", "delete")}
    assert role("ClusterRole", names.ROLE_SYNC_TENANT) == needed["tenant"]
    assert role("Role", names.SERVICE_ACCOUNT_SYNC) == needed["platform"]


def test_of_other_namespaces_sync_may_read_where_the_api_server_is() -> None:
    (api_server,) = (m for m in manifests() if (m["kind"], m["metadata"]["name"]) == ("Role", "trainyard-sync-api-server"))
    assert api_server["metadata"]["namespace"] == "default"
    assert all(rule["resourceNames"] == ["kubernetes"] for rule in api_server["rules"])
    assert role("Role", "trainyard-sync-api-server") == {("", "services", "get"), ("discovery.k8s.io", "endpointslices", "get")}


def test_sync_may_bind_our_three_roles_only() -> None:
    (sync,) = (m for m in manifests() if (m["kind"], m["metadata"]["name"]) == ("ClusterRole", names.SERVICE_ACCOUNT_SYNC))
    (binding,) = (rule for rule in sync["rules"] if "bind" in rule["verbs"])
    assert set(binding["resourceNames"]) == set(objects.ROLES)
    everything = {verb for m in manifests() for rule in m.get("rules", ()) for verb in rule["verbs"]}
    assert not everything & {"*", "escalate", "impersonate", "deletecollection"}


def test_no_identity_that_gives_rights_can_be_borrowed_by_a_pod() -> None:
    """Whoever may create a pod in a namespace may run it as any ServiceAccount there: run's pods must not be sync."""
    accounts = {m["metadata"]["name"]: m["metadata"]["namespace"] for m in manifests() if m["kind"] == "ServiceAccount"}
    assert accounts == {
        names.SERVICE_ACCOUNT_RUN: names.SYSTEM_NAMESPACE,
        names.SERVICE_ACCOUNT_SYNC: names.SYSTEM_NAMESPACE,
        names.SERVICE_ACCOUNT_UPKEEP: names.PLATFORM_NAMESPACE,
    }
    roles = [m for m in manifests() if m["kind"] == "Role"]
    assert names.SYSTEM_NAMESPACE not in {m["metadata"]["namespace"] for m in roles}


def test_a_file_makes_what_it_needs_before_it_needs_it() -> None:
    """``kubectl apply -f deploy/rbac/`` goes by file name and by order."""
    made = {"default"}
    for manifest in (m for file in sorted(RBAC.glob("*.yaml")) for m in yaml.safe_load_all(file.read_text(encoding="utf-8"))):
        namespace = manifest["metadata"].get("namespace")
        assert namespace is None or namespace in made, manifest["metadata"]
        if manifest["kind"] == "Namespace":
            made.add(manifest["metadata"]["name"])


@pytest.mark.parametrize(
    ("rules", "kind", "name"),
    [
        (rights.IN_A_TENANT, "ClusterRole", names.SERVICE_ACCOUNT_RUN),
        (rights.IN_THE_PLATFORM, "Role", names.SERVICE_ACCOUNT_RUN),
        (rights.EVERYWHERE, "ClusterRole", "trainyard-run-ports"),
    ],
)
def test_the_doctor_asks_for_just_what_is_granted(rules: tuple[rights.Rule, ...], kind: str, name: str) -> None:
    assert {(rule.group, rule.resource, verb) for rule in rules for verb in rule.verbs} == role(kind, name)
