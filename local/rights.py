"""The rights of Trainyard's identities, as deploy/rbac has them: read here for whoever starts a cluster, applied there as an administrator
does by `kubectl apply -f deploy/rbac/` on any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "rbac"
RUN = "system:serviceaccount:trainyard-system:trainyard-run"
SYNC = "system:serviceaccount:trainyard-system:trainyard-sync"
"""The user names that RBAC knows these ServiceAccounts by: a token or certificate of such a name has their rights."""
GROUP = "system:serviceaccounts"


def manifests(*, shared_ports: bool) -> Iterator[dict[str, Any]]:
    """In an order in which each can be made. `shared_ports`: pods of that cluster share one network."""
    for file in (*sorted(FOLDER.glob("*.yaml")), *([FOLDER / "optional" / "ports.yaml"] if shared_ports else [])):
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def path_of(manifest: Mapping[str, Any]) -> str:
    """An object's path in the API."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    plural = re.sub("ys$", "ies", f"{manifest['kind'].lower()}s")
    return f"{root}{inside}/{plural}/{metadata['name']}"
