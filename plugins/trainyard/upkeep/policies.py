"""NetworkPolicies of a tenant's namespace, as plain manifests. Pure.

One for all pods of the namespace: nobody comes in, and out they reach names and S3. One for each step that may reach more. A gang's own,
which opens its ports among its replicas, is made and removed with the gang (:mod:`trainyard.kube.gang_manifests`). Policies add up: what
none of them names is refused. Where nothing enforces them (the embedded cluster, `pods.host_network`) they are words.
https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from trainyard.contract import names
from trainyard.errors import ConfigError
from trainyard.settings import ClusterProfile, Settings, Tenant
from trainyard.settings.network import NEVER, Destination, Net
from trainyard.upkeep.objects import Manifest, metadata

BASE: Final = "tenant"
ANYWHERE: Final = ("0.0.0.0/0", "::/0")
PREPARE: Final = "prepare"
_SCHEMES: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ApiServer:
    """Where the API server is, as a policy sees it: behind the Service ``kubernetes``."""

    addresses: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


def policies(settings: Settings, tenant: Tenant, *, s3_endpoint: str | None, api_server: ApiServer) -> list[Manifest]:
    """All policies of a tenant's namespace but those of gangs.

    Args:
        settings: the cluster profile, and what the tenant's datasets declare.
        tenant: whose namespace.
        s3_endpoint: URL as pods see it; None for AWS' own.
        api_server: what is cut out of every wide range.

    Raises:
        ConfigError: a destination that is the API server itself.
    """
    cluster = settings.cluster
    rules = _Rules(cluster, api_server)
    s3 = cluster.network.s3 if cluster.network.s3 is not None else _s3(s3_endpoint)
    everybody = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": rules.of([*cluster.network.dns, *s3], "network")}
    found = [_policy(BASE, tenant.name, everybody)]
    for step, destinations in _steps(settings, tenant).items():
        mine = {"podSelector": {"matchLabels": {names.LABEL_STEP: step}}, "policyTypes": ["Egress"], "egress": rules.of(destinations, step)}
        found.append(_policy(f"step-{step}", tenant.name, mine))
    return found


def _steps(settings: Settings, tenant: Tenant) -> Mapping[str, list[Destination]]:
    """What steps may reach beyond S3, by step. A dataset is the whole tenant's: between two of its pipelines there is no wall."""
    found: dict[str, list[Destination]] = {step: list(given) for step, given in settings.cluster.network.steps.items()}
    datasets = sorted({pipeline.dataset for pipeline in settings.pipelines_of(tenant.name)})
    for address in (address for dataset in datasets for address in settings.datasets[dataset].egress):
        found.setdefault(PREPARE, []).append(Destination(cidr=address.cidr, ports=address.ports))
    return {step: destinations for step, destinations in sorted(found.items()) if destinations}


def _s3(endpoint: str | None) -> list[Destination]:
    parts = urlsplit(endpoint or "https://")
    port = parts.port or _SCHEMES[parts.scheme]
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:  # a name, whose addresses change
        return [Destination(cidr=cidr, ports=(port,)) for cidr in ANYWHERE]
    return [Destination(cidr=str(ipaddress.ip_network(address)), ports=(port,))]


class _Rules:
    """Destinations as rules of a policy, without what nobody may reach."""

    def __init__(self, cluster: ClusterProfile, api_server: ApiServer) -> None:
        self._file = f"clusters/{cluster.name}.yaml"
        self._api = api_server
        self._never: list[Net] = [ipaddress.ip_network(text) for text in (*NEVER, *api_server.addresses)]

    def of(self, destinations: Iterable[Destination], where: str) -> list[dict[str, Any]]:
        return [
            {
                "to": [self._peer(one, where)],
                "ports": [{"protocol": protocol, "port": port} for port in one.ports for protocol in one.protocols],
            }
            for one in destinations
        ]

    def _peer(self, one: Destination, where: str) -> dict[str, Any]:
        if one.cidr is None:
            selector: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": one.namespace}}}
            return selector | ({"podSelector": {"matchLabels": dict(one.pod_labels)}} if one.pod_labels else {})
        net = ipaddress.ip_network(one.cidr)
        if net.num_addresses == 1:
            # Another server of the API server's machine may be meant (S3 on a small cluster's master): the port tells.
            if str(net.network_address) in self._api.addresses and set(one.ports) & set(self._api.ports):
                text = f"{self._file}: {where}: {net.network_address}:{one.ports[0]} is the cluster's API server"
                raise ConfigError(f"{text}: no tenant's pod may reach it; remove it")
            return {"ipBlock": {"cidr": one.cidr}}
        inside = [str(never) for never in self._never if never.version == net.version and never != net and never.subnet_of(net)]  # type: ignore[arg-type]
        return {"ipBlock": {"cidr": one.cidr} | ({"except": inside} if inside else {})}


def _policy(name: str, tenant: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, names.namespace(tenant), tenant),
        "spec": spec,
    }
