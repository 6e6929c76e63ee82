from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local.kubelet import unsupported, volumes
from local.kubelet.api import Json
from local.kubelet.processes import CHECKOUT
from tests.unit.local.kubelet.conftest import IMAGE, pod_document

GUIDE = CHECKOUT / "docs" / "embedded-kubelet.md"


def container(**more: Any) -> Json:
    return {"name": "main", "image": IMAGE, **more}


def _with(field: str) -> Json:
    pod = pod_document()
    pod["spec"][field] = ["x"]
    return pod


def test_a_usual_pod_is_not_refused() -> None:
    mounts = [{"name": "w", "mountPath": "/w", "subPath": "x", "readOnly": True, "mountPropagation": "None"}]
    pod = pod_document(
        container(
            volumeMounts=mounts,
            env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            securityContext={"runAsUser": 1000, "readOnlyRootFilesystem": True},
            resources={"limits": {"cpu": "1"}},
            ports=[{"containerPort": 80}],
            stdin=False,
        ),
        volumes=[{"name": "w", "emptyDir": {}}, {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        hostNetwork=True,
        hostAliases=[],
    )
    assert unsupported.refusals(pod) == []


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_restart_policies(policy: str) -> None:
    assert unsupported.refusals(pod_document(restartPolicy=policy))[0].startswith(f"spec.restartPolicy: {policy}: only Never")


@pytest.mark.parametrize("field", sorted(unsupported.POD_FIELDS))
def test_fields_of_a_pod(field: str) -> None:
    assert any(item.startswith(f"spec.{field}: ") for item in unsupported.refusals(_with(field)))


@pytest.mark.parametrize("field", sorted(unsupported.CONTAINER_FIELDS))
@pytest.mark.parametrize("group", ["containers", "initContainers"])
def test_fields_of_a_container(group: str, field: str) -> None:
    pod = pod_document(container())
    pod["spec"][group] = [container(**{field: {"x": 1}})]
    assert any(item.startswith(f"spec.{group}[main].{field}: ") for item in unsupported.refusals(pod))


@pytest.mark.parametrize("kind", ["hostPath", "persistentVolumeClaim", "nfs", "csi", "ephemeral", "image", "iscsi"])
def test_kinds_of_volumes(kind: str) -> None:
    found = unsupported.refusals(pod_document(volumes=[{"name": "v", kind: {}}]))
    assert found == [f"spec.volumes[v].{kind}: not a volume kind of the embedded cluster (has {', '.join(volumes.KINDS)})"]


@pytest.mark.parametrize(
    ("pod", "where"),
    [
        (
            pod_document(volumes=[{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]),
            "spec.volumes[v].projected.clusterTrustBundle",
        ),
        (pod_document(container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}])), "volumeMounts[v].subPathExpr"),
        (pod_document(container(volumeMounts=[{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}])), "mountPropagation"),
        (pod_document(container(resources={"claims": [{"name": "c"}]})), "resources.claims"),
        (pod_document(container(env=[{"name": "A", "valueFrom": {"fileKeyRef": {}}}])), "env[A].valueFrom.fileKeyRef"),
    ],
)
def test_what_is_deeper(pod: Json, where: str) -> None:
    assert any(where in item for item in unsupported.refusals(pod))


def test_the_message_names_everything_and_the_way_out() -> None:
    message = unsupported.message(unsupported.refusals(pod_document(container(livenessProbe={"x": 1}), restartPolicy="Always")))
    for words in ("restartPolicy: Always", "containers[main].livenessProbe", "docs/embedded-kubelet.md"):
        assert words in message


@pytest.mark.parametrize(
    ("owners", "waits"),
    [
        (None, False),
        ([{"kind": "Job", "controller": True}], False),
        ([{"kind": "ReplicaSet", "controller": True}], True),
        ([{"kind": "ReplicaSet"}], False),
    ],
)
def test_pods_that_would_be_replaced_at_once_wait(owners: Any, waits: bool) -> None:
    assert unsupported.waits_instead_of_failing(pod_document(metadata={"ownerReferences": owners})) is waits


def section(text: str, title: str) -> str:
    """One chapter of the guide."""
    _, _, rest = text.partition(f"\n## {title}")
    assert rest, f"{GUIDE.name} has no chapter {title!r}"
    return rest.partition("\n## ")[0]


def test_the_guide_names_all_that_is_refused_and_all_that_is_done() -> None:
    text = Path(GUIDE).read_text(encoding="utf-8")
    refused, done = section(text, "Refused by name"), section(text, "Done as a kubelet does")
    for field in (*unsupported.POD_FIELDS, *unsupported.CONTAINER_FIELDS, *unsupported.MOUNT_FIELDS, "restartPolicy", "hostPath"):
        assert f"`{field}`" in refused, field
    for kind in (*volumes.KINDS, *volumes.PROJECTED):
        assert f"`{kind}`" in done, kind
