"""Objects into the cluster by server-side apply: the API server itself says, in a dry run, what would differ.

https://kubernetes.io/docs/reference/using-api/server-side-apply/: our fields are ours (conflicts are forced: the files are the truth);
fields that others added and we do not name stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import RefusedError
from trainyard.kube.client import ask
from trainyard.kube.patience import Patience
from trainyard.upkeep.changes import Change
from trainyard.upkeep.objects import Manifest

FIELD_MANAGER: Final = "trainyard-sync"
RIGHTS_WITHIN_S: Final = 15.0
_PLURALS: Final = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ResourceQuota": "resourcequotas",
    "LimitRange": "limitranges",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "NetworkPolicy": "networkpolicies",
    "Service": "services",
    "EndpointSlice": "endpointslices",
}
_SERVERS_OWN: Final = frozenset({"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"})
_MOST_DETAILS: Final = 6


def path_of(manifest: Manifest) -> str:
    """The object's path in the API."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{inside}/{_PLURALS[manifest['kind']]}/{metadata['name']}"


class Applier:
    """Applies manifests with one client."""

    def __init__(self, api: k8s.ApiClient) -> None:
        self._api = api
        self._to_be_made: set[str] = set()
        """Namespaces that a dry run would make: nothing is in them, and nobody may ask there yet."""

    def read(self, manifest: Manifest) -> Manifest | None:
        """The object as the cluster has it, or None."""
        if manifest["metadata"].get("namespace") in self._to_be_made:
            return None
        try:
            return self._call("GET", path_of(manifest))
        except k8s.ApiException as error:
            if error.status == 404:
                return None
            raise _told(error, manifest) from error

    def apply(self, manifest: Manifest, *, dry_run: bool) -> Change | None:
        """Make the object what the manifest says; None if it is so already.

        Raises:
            RefusedError: the API server refuses it, or a namespace of that name is somebody else's.
            UnavailableError: the API server does not answer.
        """
        present = self.read(manifest)
        what = _name(manifest)
        if present is None:
            if not dry_run:
                self._patch(manifest, dry=False)
                self._await_rights(manifest)
            elif manifest["kind"] == "Namespace":
                self._to_be_made.add(manifest["metadata"]["name"])
            return Change(what, "create", _summary(manifest))
        if manifest["kind"] == "Namespace":
            _refuse_foreign(present)
        after = self._patch(manifest, dry=True)
        differences = list(_differences(_ours(present), _ours(after)))
        if not differences:
            return None
        if not dry_run:
            self._patch(manifest, dry=False)
        shown = (
            [path for path, _, _ in differences]
            if manifest["kind"] in ("Secret", "ConfigMap")
            else [f"{p} {a} → {b}" for p, a, b in differences]
        )
        more = f" and {len(shown) - _MOST_DETAILS} more" if len(shown) > _MOST_DETAILS else ""
        return Change(what, "update", ", ".join(shown[:_MOST_DETAILS]) + more)

    def remove_other_policies(self, namespace: str, wanted: Collection[str], *, dry_run: bool) -> list[Change]:
        """Remove the NetworkPolicies of ours in a namespace that are neither among ``wanted`` nor a run's: each of them opens something.

        Raises:
            RefusedError, UnavailableError: as :meth:`apply`.
        """
        if namespace in self._to_be_made:
            return []
        one: Manifest = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "", "namespace": namespace}}
        selector = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},!{names.LABEL_RUN}"
        changes = []
        try:
            found = self._call("GET", path_of(one).rstrip("/"), [("labelSelector", selector)])["items"]
            for policy in (policy for policy in found if policy["metadata"]["name"] not in wanted):
                one["metadata"]["name"] = policy["metadata"]["name"]
                if not dry_run:
                    self._call("DELETE", path_of(one))
                changes.append(Change(_name(one), "delete", "nothing asks for it any more"))
        except k8s.ApiException as error:
            raise _told(error, one) from error
        return changes

    def _await_rights(self, manifest: Manifest) -> None:
        """A binding that gives us rights counts a moment after it was made: until then whatever comes next would be refused."""
        if manifest["kind"] != "RoleBinding" or manifest["metadata"]["name"] != names.ROLE_SYNC_TENANT:
            return
        wanted = {"namespace": manifest["metadata"]["namespace"], "verb": "create", "resource": "resourcequotas"}
        review = k8s.AuthorizationV1Api(self._api).create_self_subject_access_review
        patience = Patience(seconds=RIGHTS_WITHIN_S, first=0.05, most=0.5)
        while not ask(review, {"spec": {"resourceAttributes": wanted}}).status.allowed:
            if not patience.wait():
                raise RefusedError(f"{_name(manifest)} was made, but gives no rights: is ClusterRole {names.ROLE_SYNC_TENANT} ours?")

    def _patch(self, manifest: Manifest, *, dry: bool) -> Manifest:
        query = [("fieldManager", FIELD_MANAGER), ("force", "true"), *([("dryRun", "All")] if dry else [])]
        try:
            return self._call("PATCH", path_of(manifest), query, manifest)
        except k8s.ApiException as error:
            raise _told(error, manifest) from error

    def _call(self, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Manifest | None = None) -> Manifest:
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/apply-patch+yaml"} if body is not None else {})
        found: Manifest = ask(
            self._api.call_api,
            path,
            method,
            query_params=query or [],
            header_params=headers,
            body=body,
            response_types_map={200: "object", 201: "object"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
        )
        return found


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    inside = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{manifest['kind']} {inside}{metadata['name']}"


def _told(error: k8s.ApiException, manifest: Manifest) -> RefusedError:
    return RefusedError(f"the cluster refuses {_name(manifest)}: {error.status} {(error.body or error.reason or '')[:500]}")


def _refuse_foreign(present: Manifest) -> None:
    name = present["metadata"]["name"]
    if (present["metadata"].get("labels") or {}).get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
        label = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        raise RefusedError(
            f"namespace {name} exists and is not Trainyard's: rename the tenant, or give it over: kubectl label ns {name} {label}"
        )


def _summary(manifest: Manifest) -> str:
    match manifest["kind"]:
        case "ResourceQuota":
            hard = manifest["spec"]["hard"]
            scratch = f", scratch {amount}" if (amount := hard.get("limits.ephemeral-storage")) else ""
            return f"cpu {hard['limits.cpu']}, memory {hard['limits.memory']}{scratch}, pods {hard['pods']}"
        case "LimitRange":
            default = manifest["spec"]["limits"][0]["default"]
            return f"a container is worth cpu {default['cpu']}, memory {default['memory']} unless it says so"
        case "Namespace":
            return f"pods must be {manifest['metadata']['labels']['pod-security.kubernetes.io/enforce']}"
        case "NetworkPolicy":
            targets = [_target(rule) for rule in manifest["spec"].get("egress", ())]
            return f"out to {', '.join(targets) or 'nobody'}" + ("; in from nobody" if "Ingress" in manifest["spec"]["policyTypes"] else "")
        case "Secret" | "ConfigMap":
            return "keys " + ", ".join(sorted(manifest["data"]))
        case _:
            return "in the cluster"


def _target(rule: Mapping[str, Any]) -> str:
    """A rule of a NetworkPolicy in words: ``10.1.2.3/32:443``."""
    (peer,) = rule["to"]
    block, labels = peer.get("ipBlock"), peer.get("podSelector", {}).get("matchLabels", {})
    where = block["cidr"] if block else "/".join([*peer["namespaceSelector"]["matchLabels"].values(), *labels.values()])
    return f"{where}:{','.join(str(port) for port in sorted({port['port'] for port in rule['ports']}))}"


def _ours(thing: Manifest) -> Manifest:
    """Without what the server adds of itself."""
    metadata = {key: value for key, value in thing["metadata"].items() if key not in _SERVERS_OWN}
    return {**{key: value for key, value in thing.items() if key != "status"}, "metadata": metadata}


def _differences(before: Any, after: Any, path: str = "") -> Any:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}[{index}]")
    elif before != after:
        yield path, before, after
