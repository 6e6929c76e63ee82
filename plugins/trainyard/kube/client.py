"""How to reach the cluster: one function for Airflow's processes, pods of the platform and people's commands.

A pod on the embedded cluster is a process without a mount namespace, so its service-account files are not where every Kubernetes
client looks for them: the kubelet says where it put a volume in ``TRAINYARD_MOUNT_<VOLUME>``. That place is looked at before the
usual one; on any other cluster the variable does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from kubernetes import client as k8s
from kubernetes import config as kube_config
from urllib3.exceptions import HTTPError

from trainyard.errors import ConfigError, UnavailableError
from trainyard.kube.patience import Patience

KUBECONFIG: Final = "TRAINYARD_KUBECONFIG"
SYNC_KUBECONFIG: Final = "TRAINYARD_SYNC_KUBECONFIG"
MOUNT_PREFIX: Final = "TRAINYARD_MOUNT_"
TOKEN_VOLUME: Final = "kube-api-access"
"""Volume name of a service-account token in pods of ours (Kubernetes' own begin with the same words)."""
TIMEOUT: Final = (5.0, 30.0)
"""Seconds to connect, and of silence, for calls that do not follow a log."""

T = TypeVar("T")


def _mounted_account() -> Path | None:
    prefix = MOUNT_PREFIX + TOKEN_VOLUME.upper().replace("-", "_")
    for name, value in os.environ.items():
        if name.startswith(prefix) and Path(value, "token").is_file():
            return Path(value)
    return None


def _from_mount(folder: Path) -> k8s.Configuration:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError(f"{folder} holds a service account, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    configuration = k8s.Configuration()
    configuration.host = f"https://{host}:{port}"
    configuration.ssl_ca_cert = str(folder / "ca.crt")
    configuration.api_key = {"authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
    return configuration


def _variable(*, sync: bool) -> str | None:
    """The variable that names a kubeconfig for this process, if one does."""
    return next((name for name in ((SYNC_KUBECONFIG, KUBECONFIG) if sync else (KUBECONFIG,)) if os.environ.get(name)), None)


def kubeconfig_path(profile_kubeconfig: str | None = None, *, sync: bool = False) -> Path | None:
    """The kubeconfig to use: TRAINYARD_KUBECONFIG, else the cluster profile's; None inside a cluster.

    ``sync`` is for the identity that makes namespaces: TRAINYARD_SYNC_KUBECONFIG goes before both.
    """
    variable = _variable(sync=sync)
    named = os.environ[variable] if variable else profile_kubeconfig
    return Path(named).expanduser() if named else None


def configuration(profile_kubeconfig: str | None = None, *, sync: bool = False) -> k8s.Configuration:
    """Where the API server is and who we are.

    In this order: the kubeconfig that a variable names (:func:`kubeconfig_path`), a service account materialised by the embedded
    kubelet, the profile's ``kubeconfig``, the service account of a pod.

    Raises:
        ConfigError: none of them is there, or the one named cannot be read.
    """
    variable = _variable(sync=sync)
    if variable is None and (folder := _mounted_account()) is not None:
        return _from_mount(folder)
    path = kubeconfig_path(profile_kubeconfig, sync=sync)
    found = k8s.Configuration()
    try:
        if path is not None:
            if not path.is_file():
                raise ConfigError(f"{variable or 'kubeconfig'}: {path}: there is no such file")
            kube_config.load_kube_config(config_file=str(path), client_configuration=found)
        else:
            kube_config.load_incluster_config(client_configuration=found)
    except kube_config.ConfigException as error:
        where = f"{path}: " if path else f"no {KUBECONFIG}, no kubeconfig in the cluster profile, and this is no pod: "
        raise ConfigError(f"{where}{error}") from error
    return found


def client(profile_kubeconfig: str | None = None, *, sync: bool = False) -> k8s.ApiClient:
    """A client of the cluster; see :func:`configuration` for where it is found. It belongs to one process: do not fork with it."""
    found = configuration(profile_kubeconfig, sync=sync)
    # Re-tries are ours (patience.py), where the reason can be told to people; urllib3's own would be silent.
    found.retries = 0
    return k8s.ApiClient(found)


TRANSIENT: Final = frozenset({429, 500, 502, 503, 504})


def is_transient(error: BaseException) -> bool:
    """Whether the same call may work later: no answer, or an answer that says so."""
    if isinstance(error, k8s.ApiException):
        return error.status in TRANSIENT or not error.status
    return isinstance(error, HTTPError | OSError)


def ask(call: Callable[..., T], *args: Any, patience: Patience | None = None, **kwargs: Any) -> T:
    """Make one call to the API server, again while it does not answer.

    Raises:
        UnavailableError: no answer within the patience (60 s by default).
        kubernetes.client.ApiException: any answer that another try would not change.
    """
    patience = patience or Patience(seconds=60)
    kwargs.setdefault("_request_timeout", TIMEOUT)
    while True:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            if not is_transient(error):
                raise
            if not patience.wait():
                raise UnavailableError(f"the Kubernetes API server has not answered for {patience.seconds:.0f} s: {error}") from error
