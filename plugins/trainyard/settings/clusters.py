"""``config/clusters/<profile>.yaml``: the one Kubernetes cluster and S3 server that a deployment of Trainyard drives.

The profile says how *this* site differs from any other; nothing in it belongs to a tenant. Three environment variables override
it, since they are known only when something was started: ``TRAINYARD_KUBECONFIG``, ``TRAINYARD_SYNC_KUBECONFIG``,
``TRAINYARD_S3_ENDPOINT``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainyard.settings.base import Image, Name, Section, Text
from trainyard.settings.network import Network
from trainyard.settings.site_pods import ObjectName, SitePods

Port = Annotated[int, Field(ge=1024, le=65535)]
GpuResource = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
]
BucketPrefix = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{1,18}[a-z0-9]$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+(:\d+)?/?$")]


class PortRange(Section):
    """Ports from which each gang gets a block of its own (`addressing: host`)."""

    first: Port
    """First port of the range."""
    last: Port
    """Last port of the range."""
    block: int = Field(ge=3, le=10_000)
    """Ports of one gang: its chief, parameter servers and workers need one each."""

    @model_validator(mode="after")
    def _holds_a_block(self) -> Self:
        if self.last - self.first + 1 < self.block:
            raise ValueError(f"{self.first}–{self.last} is smaller than one block of {self.block} ports: raise last or lower block")
        return self

    @property
    def blocks(self) -> int:
        """How many gangs can have ports at the same time."""
        return (self.last - self.first + 1) // self.block


class Images(Section):
    """Container images of Trainyard's own pods."""

    trainer: Image
    """Every step and replica of a tenant."""
    airflow: Image
    """Upkeep: `clean_up`."""


class S3(Section):
    """The S3 server."""

    mode: Literal["managed", "external"]
    """`managed`: `trainyard sync` makes buckets and identities; `external`: the administrator gives them."""
    endpoint: Url | None = None
    """URL as pods see it; null is AWS' own, or the value of TRAINYARD_S3_ENDPOINT."""
    airflow_endpoint: Url | None = None
    """URL as Airflow's processes and the administrator's commands see it, where that is another one than the pods'."""
    public_endpoint: Url | None = None
    """URL as people's laptops see it: links to models and shards name it. Null: as Airflow sees it."""
    ca_bundle: Text | None = None
    """PEM file of the authorities that sign the server's certificate, where they are not the public ones; relative to `clusters/`. Pods
    get it from a ConfigMap that `trainyard sync` makes."""
    region: Text = "us-east-1"
    """Region that requests are signed for."""
    bucket_prefix: BucketPrefix
    """Buckets are `<prefix>-<tenant>` and `<prefix>-<tenant>-models`; bucket names are global on AWS. 3–20 characters."""


class ClusterProfile(Section):
    """One cluster."""

    name: Name = Field(exclude=True)
    """The file's stem; not written in the file."""
    description: Text | None = None
    """One line for people."""
    kubeconfig: Text | None = None
    """Path of Airflow's kubeconfig; null: TRAINYARD_KUBECONFIG, else the configuration a pod finds inside its cluster."""
    sync_kubeconfig: Text | None = None
    """Path of the kubeconfig that `trainyard sync` uses, whose identity may make namespaces; null: TRAINYARD_SYNC_KUBECONFIG, else
    Airflow's."""
    addressing: Literal["host", "dns"]
    """How replicas find each other: `dns`, by the names of a headless Service, one port; `host`, on 127.0.0.1, a block of ports a gang."""
    ports: PortRange | None = None
    """With `addressing: host`, or `pods.host_network`."""
    port: Port | None = None
    """With `addressing: dns`: the one port of every replica."""
    images: Images
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """As Kubernetes has it."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets (type kubernetes.io/dockerconfigjson) in the namespace `trainyard-platform` that open the registry; `trainyard sync` copies
    them to every tenant."""
    pods: SitePods = Field(default_factory=SitePods)
    """What this site gives every pod and Job."""
    network: Network = Field(default_factory=Network)
    """What tenants' pods may reach."""
    counts_scratch: bool = True
    """Whether its nodes report ephemeral-storage, so that scratch counts in requests and quotas; false where they do not (a kubelet with
    `localStorageCapacityIsolation: false`): such a pod would never be placed."""
    gpu_resource: GpuResource = "nvidia.com/gpu"
    """What its nodes call a GPU: the quota counts it, and workers of a pipeline with `gang.worker_gpus` ask for it."""
    s3: S3

    @model_validator(mode="after")
    def _ports_of_the_addressing(self) -> Self:
        if self.addressing == "host" and (self.ports is None or self.port is not None):
            raise ValueError("addressing 'host' needs ports: {first: …, last: …, block: …} and no port")
        if self.addressing == "dns" and self.pods.host_network:
            # Pods of one node share its ports: one number for all replicas would let one of them live there.
            if self.ports is None or self.port is not None:
                raise ValueError("addressing 'dns' with pods.host_network needs ports: {first: …, last: …, block: …} and no port")
        elif self.addressing == "dns" and (self.port is None or self.ports is not None):
            raise ValueError("addressing 'dns' needs port: 2222 (or another) and no ports")
        return self
