"""The downward API: what a pod may be told about itself, by fieldRef and resourceFieldRef, in variables and in files.

Source: kubernetes.io/docs/concepts/workloads/pods/downward-api.
"""

import math
import re
from decimal import Decimal, InvalidOperation

from kubernetes.utils.quantity import parse_quantity

from local.kubelet.api import Json
from local.kubelet.node import ADDRESS, Capacity

_KEYED = re.compile(r"^metadata\.(labels|annotations)\['(?P<key>[^']+)'\]$")


class FieldError(ValueError):
    """The pod asks for a field that there is not; the message is what a kubelet would say."""


def quantity(text: str) -> Decimal:
    """A Kubernetes quantity ("500m", "2Gi") as a number. Raises FieldError."""
    try:
        return Decimal(parse_quantity(text))
    except (ValueError, InvalidOperation) as problem:
        raise FieldError(f"{text!r} is not a quantity") from problem


def field(pod: Json, path: str) -> str:
    """The value of a fieldRef's fieldPath. Raises FieldError."""
    metadata, spec = pod["metadata"], pod["spec"]
    if keyed := _KEYED.match(path):
        return str((metadata.get(keyed[1]) or {}).get(keyed["key"], ""))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "metadata.labels": _lines(metadata.get("labels")),
        "metadata.annotations": _lines(metadata.get("annotations")),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": ADDRESS,
        "status.hostIPs": ADDRESS,
        "status.podIP": ADDRESS,
        "status.podIPs": ADDRESS,
    }
    if path not in values:
        raise FieldError(f"unsupported fieldPath: {path}")
    return str(values[path])


def _lines(pairs: dict[str, str] | None) -> str:
    """Labels or annotations as the downward API writes them into a file: sorted, values quoted as Go does."""
    return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted((pairs or {}).items()))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def resource(pod: Json, container: str, reference: Json, capacity: Capacity) -> str:
    """The value of a resourceFieldRef, in units of its divisor, rounded up; the node's capacity where the container has no limit.

    Raises FieldError.
    """
    name = reference.get("containerName") or container
    specs = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    spec = next((item for item in specs if item["name"] == name), None)
    if spec is None:
        raise FieldError(f"container {name} not found")
    kind, _, wanted = reference["resource"].partition(".")
    if kind not in ("limits", "requests") or not wanted:
        raise FieldError(f"unsupported container resource: {reference['resource']}")
    resources = spec.get("resources") or {}
    text = (resources.get(kind) or {}).get(wanted)
    if text is None and kind == "limits":
        text = {"cpu": str(capacity.cpu), "memory": str(capacity.memory)}.get(wanted)
    divisor = quantity(str(reference.get("divisor") or "1")) or Decimal(1)
    return str(math.ceil(quantity(str(text or "0")) / divisor))
