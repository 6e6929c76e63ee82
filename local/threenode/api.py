"""The little of Kubernetes' API that the starter needs itself: apply an object, look at the nodes. As the administrator, by certificate."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from local import rights
from local.threenode.keys import Keys

Document = dict[str, Any]
FIELD_MANAGER = "trainyard-threenode"


@dataclass(frozen=True)
class Api:
    """One cluster's."""

    server: str
    keys: Keys

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        """Trusts our authority alone and passes over any proxy of the environment: the master is this machine."""
        context = ssl.create_default_context(cafile=str(self.keys.authority))
        context.load_cert_chain(self.keys.crt("admin"), self.keys.key("admin"))
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def request(self, method: str, path: str, body: Document | None = None, *, kind: str = "application/json") -> Document:
        """The object that came back. Raises urllib.error.HTTPError and OSError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind, "Accept": "application/json"}
        call = urllib.request.Request(self.server + path, data=data, method=method, headers=headers)
        with self._opener.open(call, timeout=5) as answer:
            value = json.load(answer)
        return value if isinstance(value, dict) else {}

    def apply(self, manifest: Document) -> None:
        """Makes the object what the manifest says (server-side apply). Raises urllib.error.HTTPError and OSError."""
        path = f"{rights.path_of(manifest)}?fieldManager={FIELD_MANAGER}&force=true"
        self.request("PATCH", path, manifest, kind="application/apply-patch+yaml")

    def ready(self) -> bool:
        """The API server answers /readyz, etcd and its post-start hooks included."""
        try:
            with self._opener.open(f"{self.server}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def node(self, name: str) -> Document | None:
        """The Node, or None where there is none or nobody answers."""
        try:
            return self.request("GET", f"/api/v1/nodes/{name}")
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def node_ready(self, name: str, since: datetime.datetime | None = None) -> bool:
        """The node says Ready and, with `since`, has renewed its Lease after that: the API remembers a dead node's Ready for 40 s."""
        node = self.node(name)
        if node is None or not is_ready(node):
            return False
        if since is None:
            return True
        try:
            lease = self.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
        except (OSError, ValueError, http.client.HTTPException):
            return False
        renewed = lease.get("spec", {}).get("renewTime")
        return bool(renewed) and datetime.datetime.fromisoformat(renewed) >= since

    def pod_range(self, name: str) -> str | None:
        """The addresses that the controllers have given to the node's pods; None until then."""
        value = (self.node(name) or {}).get("spec", {}).get("podCIDR")
        return str(value) if value else None

    def deployment_ready(self, namespace: str, name: str) -> bool:
        """All of its replicas, of its newest generation."""
        try:
            found = self.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        except (OSError, ValueError, http.client.HTTPException):
            return False
        status, wanted = found.get("status", {}), found.get("spec", {}).get("replicas", 1)
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == wanted


def is_ready(node: Document) -> bool:
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in node.get("status", {}).get("conditions", []))
