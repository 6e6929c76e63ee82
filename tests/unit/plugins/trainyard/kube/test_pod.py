"""The one composition path: what every pod of ours is, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client as k8s

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import environment, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template, trainer_command, trainer_parts


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
