"""One pod, with the runtime, the API server and the clock in the test's hands."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from local.kubelet import pod as pod_module
from local.kubelet.api import Json
from local.kubelet.images import Images
from local.kubelet.node import Capacity
from local.kubelet.pod import Pod
from local.kubelet.start import Starter
from local.kubelet.volumes import Volumes
from tests.unit.local.kubelet.conftest import IMAGE, FakeApi, FakeProcesses


class Reporter:
    def __init__(self) -> None:
        self.statuses: list[Json] = []
        self.deleted = 0
        self.events: list[tuple[str, str]] = []

    def status(self, pod: Json, status: Json) -> None:
        self.statuses.append(status)

    def delete(self, pod: Json) -> None:
        self.deleted += 1

    def event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason))


class Clock:
    """Monotonic and wall time, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        real = time.time()
        monkeypatch.setattr(pod_module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(pod_module.time, "time", lambda: real + self.now - 1000.0)

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Bench:
    """One pod with all it needs."""

    def __init__(self, api: FakeApi, images: Images, folder: Path) -> None:
        self.api, self.folder = api, folder
        self.processes, self.reporter = FakeProcesses(), Reporter()
        self.starter = Starter(api, self.processes, images, Capacity(4, 1 << 30), lambda uid: None)  # type: ignore[arg-type]

    def pod(self, document: Json) -> Pod:
        folder = self.folder / document["metadata"]["uid"]
        volumes = Volumes(document, folder / "volumes", self.starter.sources(document), self.starter.capacity)
        return Pod(document, folder, self.starter, self.reporter, volumes)

    @property
    def last(self) -> Json:
        return self.reporter.statuses[-1]

    def state(self, name: str = "main") -> Json:
        for item in [*self.last["containerStatuses"], *self.last["initContainerStatuses"]]:
            if item["name"] == name:
                return item["state"]
        raise KeyError(name)


def container(name: str = "main", **more: Any) -> Json:
    return {"name": name, "image": IMAGE, "command": ["run"], **more}


def deleted(pod: Pod, grace: int | None = None) -> None:
    """Tells ``pod`` that it is being deleted."""
    document = json.loads(json.dumps(pod.document))
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    if grace is not None:
        document["metadata"]["deletionGracePeriodSeconds"] = grace
    assert pod.update(document)
