from __future__ import annotations

import pytest

from local.kubelet import downward
from local.kubelet.downward import FieldError
from local.kubelet.node import Capacity
from tests.unit.local.kubelet.conftest import IMAGE, pod_document

NODE = Capacity(cpu=8, memory=16 << 30)
LIMITS = {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "100m"}}
POD = pod_document(
    {"name": "main", "image": IMAGE, "resources": LIMITS},
    {"name": "free", "image": IMAGE},
    metadata={"labels": {"b": "2", "a/x": 'say "hi"\n'}, "annotations": {"note": "n"}},
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['b']", "2"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "n"),
        ("metadata.labels", 'a/x="say \\"hi\\"\\n"\nb="2"'),
        ("spec.nodeName", "local"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert downward.field(POD, path) == value


def test_a_field_that_there_is_not() -> None:
    with pytest.raises(FieldError, match=r"spec\.hostname"):
        downward.field(POD, "spec.hostname")


@pytest.mark.parametrize(
    ("container", "resource", "divisor", "value"),
    [
        ("main", "limits.cpu", None, "2"),
        ("main", "limits.cpu", "1m", "1500"),
        ("main", "limits.memory", None, str(1 << 30)),
        ("main", "limits.memory", "1Mi", "1024"),
        ("main", "requests.cpu", "1m", "100"),
        ("main", "requests.memory", "1", "0"),
        ("free", "limits.cpu", None, "8"),
        ("free", "limits.memory", "1Gi", "16"),
        ("main", "limits.cpu", "0", "2"),
    ],
)
def test_resources_are_rounded_up_and_fall_back_to_the_node(container: str, resource: str, divisor: str | None, value: str) -> None:
    reference = {"resource": resource, "containerName": container, "divisor": divisor}
    assert downward.resource(POD, "", reference, NODE) == value


@pytest.mark.parametrize(
    ("reference", "word"),
    [
        ({"resource": "limits.cpu", "containerName": "other"}, "other"),
        ({"resource": "cpu"}, "cpu"),
        ({"resource": "limits.cpu", "divisor": "many"}, "many"),
    ],
)
def test_bad_references(reference: dict[str, str], word: str) -> None:
    with pytest.raises(FieldError, match=word):
        downward.resource(POD, "main", reference, NODE)
