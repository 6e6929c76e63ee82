"""What a platform on this machine starts, and what is there already: the cluster profile's word, and the environment's.

The profile `embedded` is the cluster of this machine, started with the platform. Any other is somebody's, reached by its kubeconfig. An
S3 server that is `managed` is ours to start, where that cluster's pods reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from local.stack.configuration import Found
from local.stack.events import StackError
from local.stack.s3 import LOOPBACK

EMBEDDED = "embedded"


@dataclass(frozen=True)
class Site:
    """Defaults: everything is of this machine, on loopback."""

    kubeconfig: str | None = None
    """Of a cluster that is there already; None: the embedded one is started."""
    sync_kubeconfig: str | None = None
    """Of the identity there that makes tenants' namespaces."""
    s3_is_ours: bool = True
    s3_host: str = LOOPBACK
    s3_port: int | None = None
    """None: that of the platform's block."""
    s3_credentials: str | None = None
    """File with the keys of an S3 server that is not ours."""

    def uses_port(self, name: str) -> bool:
        """Whether the platform listens on the port of this name."""
        if name.startswith("s3"):
            return self.s3_is_ours
        return self.kubeconfig is None or name == "airflow"


def of(cluster: str, found: Found, environment: Mapping[str, str]) -> Site:
    """What the profile `cluster` makes of this platform.

    Raises:
        StackError: a cluster without a kubeconfig, or an S3 server that its pods could not reach or that nobody has keys of.
    """
    file = f"clusters/{cluster}.yaml"
    if cluster == EMBEDDED:
        return Site()
    kubeconfig = environment.get("TRAINYARD_KUBECONFIG") or found.kubeconfig
    if not kubeconfig:
        raise StackError(f"{file}: `kubeconfig` is empty: name the cluster's there, or in TRAINYARD_KUBECONFIG")
    sync_kubeconfig = environment.get("TRAINYARD_SYNC_KUBECONFIG") or found.sync_kubeconfig or kubeconfig
    path, sync_path = (Path(name).expanduser().absolute() for name in (kubeconfig, sync_kubeconfig))
    for named in (path, sync_path):
        if not named.is_file():
            raise StackError(f"{file}: the kubeconfig {named} does not exist: is the cluster up?")
    if found.s3_mode == "external":
        keys = environment.get("TRAINYARD_S3_CREDENTIALS")
        if not keys or not Path(keys).is_file():
            raise StackError(f"{file}: s3.mode is `external`: name a file with its keys in TRAINYARD_S3_CREDENTIALS")
        return Site(str(path), str(sync_path), s3_is_ours=False, s3_credentials=str(Path(keys).absolute()))
    url = urlsplit(environment.get("TRAINYARD_S3_ENDPOINT") or found.s3_endpoint or "")
    if url.scheme != "http" or not url.hostname or url.port is None or url.hostname in ("localhost", LOOPBACK):
        raise StackError(
            f"{file}: s3.mode is `managed`, so the S3 server is started here, and pods of that cluster must reach it: "
            "s3.endpoint is to be http://ADDRESS:PORT with an address of this machine that is not loopback"
        )
    return Site(str(path), str(sync_path), s3_host=url.hostname, s3_port=url.port)
