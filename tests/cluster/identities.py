"""Trainyard's own identities on the cluster under test, made as docs/guides/clusters.md says: the code under test has their rights alone.

Tests set up and look on as the administrator that KUBECONFIG names.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config

from trainyard.contract import names

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Identities:
    """A kubeconfig of each."""

    run: str
    sync: str

    def client(self, kubeconfig: str) -> client.ApiClient:
        """A client of one of them."""
        configuration = client.Configuration()
        config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        return client.ApiClient(configuration)


def make(kubeconfig: str, folder: Path, *, ports: bool) -> Identities:
    """Apply ``deploy/rbac`` as the administrator, and print the kubeconfigs.

    ``ports``: whether gangs share the ports of one network on this cluster.
    """
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    applied = ["-f", "deploy/rbac/", *(["-f", "deploy/rbac/optional/ports.yaml"] if ports else [])]
    # Server-side, since the embedded cluster's starter has done the same already.
    _run(["kubectl", "apply", "--server-side", "--force-conflicts", *applied], environment)
    files = {}
    for account in (names.SERVICE_ACCOUNT_RUN, names.SERVICE_ACCOUNT_SYNC):
        path = folder / f"{account}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(_run(["sh", "deploy/kubeconfig", account, "4h"], environment), encoding="utf-8")
        files[account] = str(path)
    return Identities(files[names.SERVICE_ACCOUNT_RUN], files[names.SERVICE_ACCOUNT_SYNC])


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def may(api: client.ApiClient, **attributes: Any) -> bool:
    """Whether the client's identity may do it: ``verb``, ``resource``, ``namespace``, …"""
    body = {"spec": {"resourceAttributes": attributes}}
    return bool(client.AuthorizationV1Api(api).create_self_subject_access_review(body).status.allowed)


def wait_for_right(api: client.ApiClient, seconds: float = 20.0, **attributes: Any) -> None:
    """A binding counts a moment after it was made."""
    end = time.monotonic() + seconds
    while not may(api, **attributes):
        assert time.monotonic() < end, f"no right after {seconds} s: {attributes}"
        time.sleep(0.05)
