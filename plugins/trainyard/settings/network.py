"""What pods may reach: the ``network`` section of a cluster profile, and what a dataset's ``prepare`` needs beyond it.

Nothing is reached but what is named. Two things are never reached, whatever is named: the metadata address of a cloud's machines
(169.254.169.254 and its like, which hand out the machine's own credentials), and the cluster's API server. An address that can only be
one of them is refused here; a wide one has them cut out when the policies are made (:mod:`trainyard.upkeep.policies`).
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from trainyard.settings.base import Section
from trainyard.settings.site_pods import LabelValue, ObjectName, SelectorKey

Net = ipaddress.IPv4Network | ipaddress.IPv6Network
NEVER: Final = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
"""Link-local addresses, which hold the metadata services of all clouds, and AWS' own in IPv6."""
StepName = Literal["prepare", "shard", "plan", "train", "evaluate", "gate", "export"]


def _check_cidr(text: str) -> str:
    try:
        net = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"is no range of addresses ({error}): write it as 10.1.0.0/16, or 10.1.2.3/32 for one alone") from None
    for never in map(ipaddress.ip_network, NEVER):
        if net.version == never.version and net.subnet_of(never):  # type: ignore[arg-type]
            raise ValueError(f"lies in {never}, where a machine's own credentials are handed out: no pod may reach it; remove it")
    return text


Cidr = Annotated[str, AfterValidator(_check_cidr)]
PortNumber = Annotated[int, Field(ge=1, le=65535)]


class Address(Section):
    """Ports of a range of addresses."""

    cidr: Cidr
    """The range, as `10.1.0.0/16`; one address is `10.1.2.3/32`."""
    ports: tuple[PortNumber, ...] = Field(min_length=1)
    """TCP ports, as `[443]`."""


class Destination(Section):
    """Ports of a range of addresses, or of pods in the cluster. Give either `cidr` or `namespace`."""

    cidr: Cidr | None = None
    """The range, as `10.1.0.0/16`; one address is `10.1.2.3/32`."""
    namespace: ObjectName | None = None
    """The pods' namespace."""
    pod_labels: dict[SelectorKey, LabelValue] = Field(default_factory=dict)
    """Labels that these pods have; none: all pods of the namespace."""
    ports: tuple[PortNumber, ...] = Field(min_length=1)
    """The pods' own ports, not a Service's: that is what policies see."""
    protocols: tuple[Literal["TCP", "UDP"], ...] = Field(default=("TCP",), min_length=1)
    """`[TCP]` or `[TCP, UDP]`."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.cidr is None) == (self.namespace is None):
            raise ValueError("give either cidr (a range of addresses) or namespace (pods of the cluster)")
        if self.cidr is not None and self.pod_labels:
            raise ValueError("pod_labels choose pods of a namespace: name the namespace, or remove them")
        return self


CLUSTER_DNS: Final = Destination(namespace="kube-system", pod_labels={"k8s-app": "kube-dns"}, ports=(53,), protocols=("TCP", "UDP"))


class Network(Section):
    """What tenants' pods may reach. Nobody reaches them but, within a gang, its own replicas."""

    dns: tuple[Destination, ...] = (CLUSTER_DNS,)
    """The servers that a pod asks for names; by default the pods `k8s-app: kube-dns` in `kube-system`."""
    s3: tuple[Destination, ...] | None = None
    """Where S3 is as pods see it. Null: the address in `s3.endpoint`; where that is a name, its port at any address."""
    steps: dict[StepName, tuple[Destination, ...]] = Field(default_factory=dict)
    """What one step's pods may reach beyond S3 and names, as `prepare: [{cidr: 10.1.2.3/32, ports: [443]}]`. What `prepare` needs for one
    dataset stands in that dataset's `egress`."""
