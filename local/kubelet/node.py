"""The Node object, its Lease and the heartbeat: what tells the cluster that this machine is there.

As a kubelet does it: the Lease is renewed every 10 s, the Node's status when it changes and every 5 minutes.
"""

import datetime
import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from local.kubelet.api import STRATEGIC_MERGE_PATCH, Api, ApiError, Json
from local.kubelet.shim import utc_seconds

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
LEASE_S, RENEW_S, STATUS_S = 40, 10.0, 300.0
RETRY_S = 1.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CPU_OVERCOMMIT = 4
"""CPUs advertised for each core: processes share cores, and the parameter servers and chief of a gang mostly wait."""


@dataclass(frozen=True)
class Capacity:
    """What the node offers to the scheduler."""

    cpu: int
    memory: int
    """Bytes."""
    pods: int = 200

    @classmethod
    def of_this_machine(cls, cpu: int | None = None, memory: int | None = None) -> "Capacity":
        """The machine's memory as it is and 4 CPUs a core, unless given."""
        return cls(cpu=cpu or CPU_OVERCOMMIT * (os.cpu_count() or 1), memory=memory or psutil.virtual_memory().total)

    def as_resources(self, disk: int) -> dict[str, str]:
        """As a Node's `capacity`; `disk` in bytes."""
        return {
            "cpu": str(self.cpu),
            "memory": f"{self.memory // 1024}Ki",
            "pods": str(self.pods),
            "ephemeral-storage": f"{disk // 1024}Ki",
        }


class Node:
    """This machine as a Node of the cluster."""

    def __init__(self, api: Api, name: str, port: int, capacity: Capacity, root: Path, version: str, returned: Callable[[], None]) -> None:
        """`port` is the kubelet's own server's; `version` the Kubernetes release it stands for.

        `returned` is called when the node was away for longer than its Lease: the cluster has marked its pods not ready meanwhile.
        """
        self._api = api
        self.name = name
        self._port = port
        self.capacity = capacity
        self._root = root
        self._version = version
        self._returned = returned
        self._since = utc_seconds(wall_clock())

    def keep(self, stop: threading.Event) -> None:
        """Register, then renew until `stop` is set; whatever fails is tried again."""
        registered, next_status = False, 0.0
        renewed, failing = wall_clock(), False
        while not stop.is_set():
            wait = RENEW_S
            try:
                if not registered:
                    self.register()
                    registered = True
                if wall_clock() >= next_status:
                    self.report()
                    next_status = wall_clock() + STATUS_S
                self.renew()
                failing = False
                away, renewed = wall_clock() - renewed, wall_clock()
                if away > LEASE_S:
                    self._returned()
            except ApiError as problem:
                if problem.status == 404:  # the Node was deleted: a kubelet comes back
                    registered, next_status = False, 0.0
                if not failing:
                    log.warning("node %s: %s; trying again", self.name, problem)
                failing, wait = True, RETRY_S
            stop.wait(wait)

    def register(self) -> None:
        """Create the Node where it is absent. Raises ApiError."""
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": _architecture()}
        try:
            self._api.request(
                "POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}
            )
            log.info("node %s registered: %d CPUs, %d MiB", self.name, self.capacity.cpu, self.capacity.memory >> 20)
        except ApiError as problem:
            if problem.status != 409:
                raise

    def report(self) -> None:
        """Write the Node's status. Raises ApiError."""
        self._api.request("PATCH", f"/api/v1/nodes/{self.name}/status", body={"status": self.status()}, content_type=STRATEGIC_MERGE_PATCH)

    def status(self) -> Json:
        """The Node's status now."""
        resources = self.capacity.as_resources(shutil.disk_usage(self._root).total)
        now = utc_seconds(wall_clock())
        conditions = [
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "not watched: containers are held to their own limits"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "not watched"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "not watched"),
            ("Ready", "True", "KubeletReady", "containers are processes of the user who started this kubelet"),
        ]
        return {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": self.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "conditions": [
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": self._since,
                }
                for kind, value, reason, message in conditions
            ],
            "nodeInfo": {
                "architecture": _architecture(),
                "operatingSystem": "linux",
                "kernelVersion": platform.release(),
                "osImage": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux") if Path("/etc/os-release").exists() else "Linux",
                "machineID": _first_line("/etc/machine-id"),
                "systemUUID": "",
                "bootID": _first_line("/proc/sys/kernel/random/boot_id"),
                "containerRuntimeVersion": "processes://1",
                "kubeletVersion": self._version,
                "kubeProxyVersion": "",
            },
        }

    def renew(self) -> None:
        """Renew the Lease, or create it. Raises ApiError."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        try:
            self._api.request("PATCH", f"{LEASES}/{self.name}", body={"spec": spec}, content_type=STRATEGIC_MERGE_PATCH)
        except ApiError as problem:
            if problem.status != 404:
                raise
            owner = self._api.get(f"/api/v1/nodes/{self.name}")
            reference = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": owner["metadata"]["uid"]}
            metadata = {"name": self.name, "namespace": "kube-node-lease", "ownerReferences": [reference]}
            self._api.request("POST", LEASES, body={"metadata": metadata, "spec": spec})


def wall_clock() -> float:
    """Seconds since the epoch. Not the monotonic clock: that stands still while a machine sleeps, and a Lease does not."""
    return time.time()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
