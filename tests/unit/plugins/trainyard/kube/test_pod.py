"""The one composition path: what every pod of ours is, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client as k8s

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import environment, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template, trainer_command, trainer_parts
from trainyard.settings.clusters import S3, ClusterProfile, Images
from trainyard.settings.site_pods import SitePods, Toleration


def spec(**changes: Any) -> RunSpec:
    return RunSpec.model_validate(run_spec_document(**changes))


def composed(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"command": trainer_command("step", "plan"), "slots": 2, "labels": {"a": "b"}, "environment_": {"X": "1"}}
    parts = trainer_parts(spec(), Site("registry/trainer:1", "Always"), **(values | changes))
    document: dict[str, Any] = k8s.ApiClient().sanitize_for_serialization(as_pod(pod_template(parts), "run-plan", "tenant-vision"))
    return document


def test_it_satisfies_the_restricted_standard() -> None:
    pod = composed()["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "trainyard-pod"
    assert pod["restartPolicy"] == "Never"


def test_requests_are_limits_and_both_are_slots_times_slot() -> None:
    (container,) = composed()["spec"]["containers"]
    wanted = {"cpu": "1500m", "memory": "4Gi", "ephemeral-storage": "4Gi"}
    assert container["resources"] == {"requests": wanted, "limits": wanted}
    assert composed()["spec"]["volumes"] == [{"name": "work", "emptyDir": {"sizeLimit": "4Gi"}}]


def test_its_environment_is_the_contracts_and_nothing_else() -> None:
    (container,) = composed()["spec"]["containers"]
    values = {variable["name"]: variable for variable in container["env"]}
    assert set(values) == {
        "HOME", "TMPDIR", "X", environment.RUN_SPEC, environment.POD_NAME, environment.CPU_MILLIS, environment.MEMORY_BYTES,
        environment.S3_ACCESS_KEY, environment.S3_SECRET_KEY,
    }  # fmt: skip
    assert RunSpec.model_validate_json(values[environment.RUN_SPEC]["value"]) == spec()
    assert values[environment.CPU_MILLIS]["valueFrom"]["resourceFieldRef"] == {
        "containerName": "main", "resource": "limits.cpu", "divisor": "1m",
    }  # fmt: skip
    assert values[environment.S3_SECRET_KEY]["valueFrom"]["secretKeyRef"] == {"name": "s3-run", "key": "secret_key"}
    assert container["workingDir"] == values["HOME"]["value"] == "/work"


def test_gate_and_export_get_the_export_identity_only() -> None:
    (container,) = composed(secret=names.SECRET_EXPORT)["spec"]["containers"]
    secrets = {v["valueFrom"]["secretKeyRef"]["name"] for v in container["env"] if "secretKeyRef" in v.get("valueFrom", {})}
    assert secrets == {"s3-export"}


def test_the_supervisor_is_pid_1_of_every_trainer() -> None:
    (container,) = composed()["spec"]["containers"]
    assert container["command"] == ["python", "-m", "trainer.supervisor", "--", "python", "-m", "trainer.cli", "step", "plan"]


@pytest.mark.parametrize("access", [True, False])
def test_only_upkeep_gets_a_token(access: bool) -> None:
    parts = PodParts(
        site=Site("i", "Never"), command=["c"], resources={"cpu": "1"}, scratch="1Mi", environment={}, labels={}, api_access=access
    )
    pod = k8s.ApiClient().sanitize_for_serialization(pod_template(parts))["spec"]
    tokens = [volume for volume in pod["volumes"] if "projected" in volume]
    assert len(tokens) == access
    assert pod["automountServiceAccountToken"] is False


def test_where_nodes_report_no_ephemeral_storage_none_is_asked_for() -> None:
    parts = trainer_parts(spec(), Site("i:1", "Always", counts_scratch=False), command=["c"], slots=2, labels={}, environment_={})
    pod = k8s.ApiClient().sanitize_for_serialization(pod_template(parts))["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1500m", "memory": "4Gi"}
    assert pod["volumes"][0]["emptyDir"] == {"sizeLimit": "4Gi"}


SITE_PODS = SitePods(
    labels={"example.com/team": "ml"},
    annotations={"example.com/note": "a: b"},
    node_selector={"pool": "train"},
    tolerations=(
        Toleration(key="dedicated", value="ml", effect="NoSchedule"),
        Toleration(operator="Exists", effect="NoExecute", toleration_seconds=0),
    ),
    priority_class_name="low",
    scheduler_name="other",
    host_network=True,
)


def at(site: Site) -> dict[str, Any]:
    parts = trainer_parts(spec(), site, command=["c"], slots=1, labels={names.LABEL_RUN: "r"}, environment_={}, annotations={"x": "y"})
    document: dict[str, Any] = k8s.ApiClient().sanitize_for_serialization(pod_template(parts))
    return document


def test_what_a_site_gives_every_pod_is_passed_through() -> None:
    pod = at(Site("i:1", "Always", pull_secrets=("registry",), pods=SITE_PODS))
    assert pod["metadata"] == {
        "labels": {"example.com/team": "ml", names.LABEL_RUN: "r"},
        "annotations": {"example.com/note": "a: b", "x": "y"},
    }
    assert pod["spec"]["nodeSelector"] == {"pool": "train"}
    assert pod["spec"]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    ]
    assert (pod["spec"]["priorityClassName"], pod["spec"]["schedulerName"]) == ("low", "other")
    assert (pod["spec"]["hostNetwork"], pod["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_a_site_that_says_nothing_adds_nothing() -> None:
    pod = at(Site("i:1", "Always"))
    keys = {"nodeSelector", "tolerations", "priorityClassName", "schedulerName", "hostNetwork", "dnsPolicy", "imagePullSecrets"}
    assert not keys & set(pod["spec"])
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["work"]


def test_the_authorities_of_s3_lie_where_boto3_is_told_to_look() -> None:
    pod = at(Site("i:1", "Always", ca_bundle=True))["spec"]
    (container,) = pod["containers"]
    assert {"name": "s3-ca", "configMap": {"name": "s3-ca"}} in pod["volumes"]
    assert {"name": "s3-ca", "mountPath": "/etc/trainyard/s3-ca", "readOnly": True} in container["volumeMounts"]
    assert {"name": "AWS_CA_BUNDLE", "value": "/etc/trainyard/s3-ca/ca.crt"} in container["env"]


def test_a_site_is_the_profiles_with_every_field_of_it() -> None:
    profile = ClusterProfile(
        name="c",
        addressing="dns",
        port=2222,
        images=Images(trainer="t:1", airflow="a:1"),
        image_pull_policy="Never",
        image_pull_secrets=("registry",),
        counts_scratch=False,
        gpu_resource="amd.com/gpu",
        pods=SITE_PODS.model_copy(update={"host_network": False}),
        s3=S3(mode="external", bucket_prefix="abc", ca_bundle="/ca.pem"),
    )
    assert Site.of(profile) == Site("t:1", "Never", False, "amd.com/gpu", ("registry",), True, profile.pods)
    assert Site.of(profile, profile.images.airflow).image == "a:1"
