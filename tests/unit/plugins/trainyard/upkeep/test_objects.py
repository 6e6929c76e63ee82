"""What a tenant's one number becomes in the cluster."""

from __future__ import annotations

import base64

from tests.unit.plugins.trainyard.upkeep.conftest import changed
from trainyard.contract import names
from trainyard.settings import Settings
from trainyard.settings.quantities import cpu_millis, memory_bytes
from trainyard.upkeep import objects


def test_the_quota_is_slots_times_slot_and_nothing_else(settings: Settings) -> None:
    quota = objects.resource_quota(settings.tenants["vision"])
    assert quota["metadata"]["namespace"] == "tenant-vision"
    assert quota["spec"]["hard"] == {
        "requests.cpu": "4500m",
        "limits.cpu": "4500m",
        "requests.memory": "12Gi",
        "limits.memory": "12Gi",
        "requests.ephemeral-storage": "12Gi",
        "limits.ephemeral-storage": "12Gi",
        "pods": "6",
        "requests.nvidia.com/gpu": "0",
        "persistentvolumeclaims": "0",
        "services.nodeports": "0",
        "services.loadbalancers": "0",
    }


def test_every_gang_that_settings_accept_fits_into_its_quota(settings: Settings) -> None:
    for pipeline in settings.pipelines.values():
        tenant = settings.tenant_of(pipeline)
        hard = objects.resource_quota(tenant)["spec"]["hard"]
        assert cpu_millis(tenant.slot.cpu) * pipeline.gang.slots <= cpu_millis(hard["limits.cpu"])
        assert memory_bytes(tenant.slot.memory) * pipeline.gang.slots <= memory_bytes(hard["limits.memory"])
        assert 1 + pipeline.gang.workers + pipeline.gang.parameter_servers <= int(hard["pods"])


def test_a_container_that_says_nothing_is_worth_one_slot(settings: Settings) -> None:
    (limit,) = objects.limit_range(settings.tenants["tabular"])["spec"]["limits"]
    assert limit["default"] == limit["defaultRequest"] == {"cpu": "750m", "memory": "2Gi", "ephemeral-storage": "1Gi"}
    assert limit["max"] == {"cpu": "3000m", "memory": "8Gi", "ephemeral-storage": "4Gi"}


def test_the_quota_follows_the_number(settings: Settings) -> None:
    more = objects.resource_quota(changed(settings.tenants["vision"], slots=10))["spec"]["hard"]
    assert (more["limits.cpu"], more["limits.memory"], more["pods"]) == ("7500m", "20Gi", "10")


def test_namespaces_take_restricted_pods_only(settings: Settings) -> None:
    for manifest in (objects.namespace("tenant-vision", "vision"), objects.namespace(names.PLATFORM_NAMESPACE)):
        labels = manifest["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        assert labels["pod-security.kubernetes.io/enforce-version"] == "latest"
        assert labels[names.LABEL_MANAGED_BY] == names.MANAGED_BY


def test_no_pod_gets_a_token_unasked_and_rights_are_given_in_tenants_namespaces_alone(settings: Settings) -> None:
    everything = [*objects.platform_objects(), *objects.tenant_objects(settings.tenants["vision"], settings.cluster)]
    for account in (m for m in everything if m["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    bindings = [m for m in everything if "Binding" in m["kind"]]
    assert {(m["kind"], m["metadata"]["namespace"]) for m in bindings} == {("RoleBinding", "tenant-vision")}
    assert {(m["roleRef"]["name"], m["subjects"][0]["name"], m["subjects"][0]["namespace"]) for m in bindings} == {
        ("trainyard-sync-tenant", "trainyard-sync", "trainyard-system"),
        ("trainyard-run", "trainyard-run", "trainyard-system"),
        ("trainyard-upkeep", "trainyard-upkeep", "trainyard-platform"),
    }
    assert {m["roleRef"]["name"] for m in bindings} == set(objects.ROLES)


def test_sync_lets_itself_in_before_anything_else_is_made(settings: Settings) -> None:
    made = objects.tenant_objects(settings.tenants["vision"], settings.cluster)
    assert [m["kind"] for m in made[:2]] == ["Namespace", "RoleBinding"]
    assert made[1]["metadata"]["name"] == names.ROLE_SYNC_TENANT


def test_only_where_pods_use_their_nodes_network_are_any_admitted(settings: Settings) -> None:
    labels = objects.namespace("tenant-vision", "vision", host_network=True)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["pod-security.kubernetes.io/audit"] == "restricted"


def test_each_object_can_be_made_in_the_order_given(settings: Settings) -> None:
    made = set()
    for manifest in [*objects.platform_objects(), *objects.tenant_objects(settings.tenants["vision"], settings.cluster)]:
        inside = manifest["metadata"].get("namespace")
        assert inside is None or ("Namespace", inside) in made
        made.add((manifest["kind"], manifest["metadata"]["name"]))


def test_a_secret_carries_its_values(settings: Settings) -> None:
    manifest = objects.secret("s3-run", "tenant-vision", {"access_key": "a", "secret_key": "ü"}, "vision")
    assert {key: base64.b64decode(value).decode() for key, value in manifest["data"].items()} == {"access_key": "a", "secret_key": "ü"}


def test_where_nodes_report_no_ephemeral_storage_none_is_counted(settings: Settings) -> None:
    """A default of the LimitRange would put it into every pod, and no node could take them."""
    tenant = settings.tenants["vision"]
    quota = objects.resource_quota(tenant, counts_scratch=False)["spec"]["hard"]
    (limit,) = objects.limit_range(tenant, counts_scratch=False)["spec"]["limits"]
    assert not [name for name in quota if "storage" in name]
    assert all(set(limit[kind]) == {"cpu", "memory"} for kind in ("default", "defaultRequest", "max"))
