"""The NetworkPolicies of tenants' namespaces brought up to date; what they say is decided in :mod:`trainyard.upkeep.policies`."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.contract import names
from trainyard.errors import RefusedError
from trainyard.settings import Settings
from trainyard.store.opening import credentials
from trainyard.upkeep.applying import Applier
from trainyard.upkeep.changes import Change
from trainyard.upkeep.policies import ApiServer, policies


def sync(settings: Settings, applier: Applier, *, dry_run: bool) -> Iterator[Change]:
    """Every tenant's; policies of ours that nothing asks for any more are removed, since each of them opens something.

    Raises:
        ConfigError: a destination is the API server itself, or S3 has no address.
        RefusedError, UnavailableError: of the cluster.
    """
    endpoint, server = settings.cluster.s3.endpoint or credentials(settings).endpoint, api_server(applier)
    for name, tenant in settings.tenants.items():
        wanted = policies(settings, tenant, s3_endpoint=endpoint, api_server=server)
        for manifest in wanted:
            if (change := applier.apply(manifest, dry_run=dry_run)) is not None:
                yield change
        yield from applier.remove_other_policies(names.namespace(name), [one["metadata"]["name"] for one in wanted], dry_run=dry_run)


def api_server(applier: Applier) -> ApiServer:
    """Addresses and ports of the Service ``kubernetes`` and of the servers behind it: a policy may see either.

    Raises:
        RefusedError: we may not ask: an earlier release's ``deploy/rbac`` did not allow it.
    """
    here = {"name": "kubernetes", "namespace": "default"}
    try:
        service = applier.read({"apiVersion": "v1", "kind": "Service", "metadata": here}) or {}
        slice_ = applier.read({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": here}) or {}
    except RefusedError as error:
        raise RefusedError(f"{error}: an administrator runs: kubectl apply -f deploy/rbac") from error
    spec = service.get("spec") or {}
    addresses = {address for endpoint in slice_.get("endpoints") or () for address in endpoint["addresses"]}
    ports = {port["port"] for port in [*(slice_.get("ports") or ()), *(spec.get("ports") or ())]}
    return ApiServer(tuple(sorted(addresses | set(spec.get("clusterIPs") or ()))), tuple(sorted(ports)))
