"""What the cluster cases share: a namespace with pods in it, described as plain documents as Kubernetes has them.

Nothing here knows which cluster it talks to; a profile (conftest.py) names images and what is only true of one kind of cluster.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client

Json = dict[str, Any]

ENDED = ("Succeeded", "Failed")
POLL_S = 0.1


@dataclass(frozen=True)
class Profile:
    """What a case may count on in the cluster at hand (`--cluster-profile FILE`, TRAINYARD_CLUSTER_PROFILE)."""

    image: str = "localhost/trainyard/shell:dev"
    """An image with sh and python3."""
    absent_image: str = "localhost:1/trainyard/absent:none"
    """A reference that no one can pull."""
    embedded: bool = True
    kubelet_root: Path | None = None
    """The embedded kubelet's root folder, for the cases that kill it."""
    evicts_full_volumes: bool = True
    """Whether an emptyDir's sizeLimit is enforced (a kubelet with localStorageCapacityIsolation; realkube has none)."""
    enforces_policies: bool = False
    """Whether NetworkPolicies hold anybody: the embedded cluster's are words."""
    patience: float = 1.0
    """Factor on every deadline."""


def script(text: str) -> list[str]:
    """A container's command: a shell script."""
    return ["sh", "-c", text]


def python(text: str) -> list[str]:
    """A container's command: a Python program."""
    return ["python3", "-u", "-c", text]


@dataclass
class Namespace:
    """One namespace of the cluster under test."""

    api: client.ApiClient
    kubeconfig: str
    profile: Profile
    name: str
    core: client.CoreV1Api = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.core = client.CoreV1Api(self.api)

    def plain(self, thing: Any) -> Json:
        """A client's object as the document it stands for."""
        document: Json = self.api.sanitize_for_serialization(thing)
        return document

    def container(self, command: list[str], name: str = "main", **more: Any) -> Json:
        """A container of the profile's image."""
        return {"name": name, "image": self.profile.image, "command": command, **more}

    def create(self, *containers: Json, metadata: Json | None = None, **spec: Any) -> str:
        """Create a pod; its name."""
        self.count += 1
        name = (metadata or {}).pop("name", f"pod-{self.count}")
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": list(containers), **spec},
        }
        self.core.create_namespaced_pod(self.name, body)
        return name

    def run(self, command: list[str], *, within: float = 30.0, **container: Any) -> Json:
        """Run one container to its end; the pod then."""
        return self.wait_for(self.create(self.container(command, **container)), ended, within)

    def pod(self, name: str) -> Json:
        """The pod as it is now."""
        return self.plain(self.core.read_namespaced_pod(name, self.name))

    def wait_for(self, name: str, condition: Callable[[Json], Any], within: float = 30.0) -> Json:
        """The pod once the condition holds. Fails with the pod's status otherwise."""
        deadline = time.monotonic() + within * self.profile.patience
        while True:
            pod = self.pod(name)
            if condition(pod):
                return pod
            assert time.monotonic() < deadline, f"pod {name} did not come so far in {within} s: {pod['status']}"
            time.sleep(POLL_S)

    def wait_gone(self, name: str, within: float = 30.0) -> float:
        """Wait until the pod's object is gone; how long it took in seconds."""
        began = time.monotonic()
        while any(pod.metadata.name == name for pod in self.core.list_namespaced_pod(self.name).items):
            assert time.monotonic() < began + within * self.profile.patience, f"pod {name} is still there: {self.pod(name)['status']}"
            time.sleep(POLL_S)
        return time.monotonic() - began

    def logs(self, name: str, container: str = "main", **options: Any) -> str:
        """A container's log, by the API (not kubectl)."""
        data = self.core.read_namespaced_pod_log(name, self.name, container=container, _preload_content=False, **options).data
        return str(data.decode())

    def events(self, name: str) -> list[Json]:
        """The events about a pod."""
        items = self.core.list_namespaced_event(self.name, field_selector=f"involvedObject.name={name}").items
        return [self.plain(item) for item in items]

    def kubectl(self, *arguments: str, check: bool = True, within: float = 60.0) -> subprocess.CompletedProcess[str]:
        """kubectl in this namespace."""
        command = ["kubectl", "--kubeconfig", self.kubeconfig, "--namespace", self.name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=within * self.profile.patience, check=False)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done


def ended(pod: Json) -> bool:
    """Whether the pod's phase is final."""
    return pod["status"].get("phase") in ENDED


def running(pod: Json) -> bool:
    """Whether the pod runs."""
    return bool(pod["status"].get("phase") == "Running")


def ready(pod: Json) -> bool:
    """Whether the Ready condition is True."""
    return condition(pod, "Ready").get("status") == "True"


def condition(pod: Json, kind: str) -> Json:
    """One condition of a pod; empty where it has none of that type."""
    found: list[Json] = [item for item in pod["status"].get("conditions") or [] if item["type"] == kind]
    return found[0] if found else {}


def state(pod: Json, container: str = "main") -> Json:
    """One container's state, init containers too; empty before there is any."""
    status = pod["status"]
    for item in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        if item["name"] == container:
            found: Json = item["state"]
            return found
    return {}


def terminated(pod: Json, container: str = "main") -> Json:
    """One container's terminated state. Fails where it has not ended."""
    found = state(pod, container)
    assert "terminated" in found, f"container {container} has not ended: {pod['status']}"
    end: Json = found["terminated"]
    return end


def waiting_reason(pod: Json, container: str = "main") -> str:
    """Why a container waits; empty where it does not."""
    return str((state(pod, container).get("waiting") or {}).get("reason", ""))
