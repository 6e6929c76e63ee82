"""No pod of ours is anything but restricted, whoever composes it and whatever the site and the caller ask for."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes import client as k8s

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import gang_manifests
from trainyard.kube.pod import PodParts, Site, pod_template
from trainyard.settings.site_pods import SitePods, Toleration

SOURCES = Path(__file__).parents[5] / "plugins" / "trainyard"
WORDS = st.sampled_from(["a", "b-c", "x1"])
SITES = st.builds(
    Site,
    image=st.sampled_from(["i:1", "registry.example.com/i@sha256:0"]),
    pull_policy=st.sampled_from(["Always", "Never"]),
    counts_scratch=st.booleans(),
    pull_secrets=st.sampled_from([(), ("registry",)]),
    ca_bundle=st.booleans(),
    pods=st.builds(
        SitePods,
        labels=st.dictionaries(WORDS, WORDS),
        annotations=st.dictionaries(WORDS, WORDS),
        node_selector=st.dictionaries(WORDS, WORDS),
        tolerations=st.sampled_from([(), (Toleration(operator="Exists"),)]),
        priority_class_name=st.sampled_from([None, "high"]),
        scheduler_name=st.sampled_from([None, "other"]),
        host_network=st.booleans(),
    ),
)
PARTS = st.builds(
    PodParts,
    site=SITES,
    command=st.lists(WORDS, min_size=1),
    resources=st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"]), st.just("1"), min_size=1),
    scratch=st.just("1Gi"),
    environment=st.dictionaries(st.sampled_from(["A", "B"]), WORDS),
    labels=st.dictionaries(WORDS, WORDS),
    annotations=st.dictionaries(WORDS, WORDS),
    secrets=st.dictionaries(st.sampled_from(["S", "T"]), st.tuples(WORDS, WORDS)),
    service_account=st.sampled_from([names.SERVICE_ACCOUNT, names.SERVICE_ACCOUNT_UPKEEP]),
    api_access=st.booleans(),
    subdomain=st.sampled_from([None, "gang"]),
    spread_by=st.sampled_from([None, {"a": "b"}]),
    active_deadline_s=st.sampled_from([None, 60]),
)


def check(template: k8s.V1PodTemplateSpec) -> None:
    pod: dict[str, Any] = k8s.ApiClient().sanitize_for_serialization(template)["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostPID", "hostIPC", "shareProcessNamespace"} & pod.keys()
    containers = [*pod["containers"], *pod.get("initContainers", []), *pod.get("ephemeralContainers", [])]
    for container in containers:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not {"runAsUser", "runAsNonRoot", "privileged", "seccompProfile"} & security.keys(), "the pod's own would not count"
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["resources"]["limits"]
    for volume in pod["volumes"]:
        assert not {"hostPath", "persistentVolumeClaim", "nfs", "csi", "ephemeral"} & volume.keys()
        assert volume.get("emptyDir", {"sizeLimit": "1"})["sizeLimit"]


@settings(max_examples=40, deadline=None)
@given(PARTS)
def test_whatever_is_asked_for_a_pod_is_restricted(parts: PodParts) -> None:
    check(pod_template(parts))


@pytest.mark.parametrize("dns", [True, False])
def test_replicas_are_too(dns: bool) -> None:
    spec = RunSpec.model_validate(run_spec_document(gang__worker_gpus=1))
    addresses = gang_manifests.dns_addresses(spec, 1, 2222) if dns else gang_manifests.host_addresses(spec, 21000)
    made = gang_manifests.build(spec, 1, addresses, Site("i:1", "Never"), spec_sha256="x")
    for job in (made.chief, *made.peers):
        check(job.spec.template)


def test_there_is_no_other_way_to_a_pod() -> None:
    """Steps, replicas, clean_up, the reaper and the doctor's probes: all of them come from the one function."""
    made: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                made.setdefault(node.func.attr, set()).add(path.relative_to(SOURCES).as_posix())
    for kind in ("V1Container", "V1PodSpec", "V1PodTemplateSpec", "V1SecurityContext"):
        assert made[kind] == {"kube/pod.py"}, kind
    assert "V1EphemeralContainer" not in made
