"""What the kubelet's unit tests share: pods as documents, and doubles for the API server and the runtime."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelet.api import ApiError, Json
from local.kubelet.images import Images
from local.kubelet.processes import Process

if TYPE_CHECKING:
    from tests.unit.local.kubelet.bench import Bench, Clock

IMAGE = "example.org/app:1"


def pod_document(*containers: Json, uid: str = "u-1", metadata: Json | None = None, status: Json | None = None, **spec: Any) -> Json:
    """A pod as the API server hands it to a kubelet."""
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z", **(metadata or {})},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "local",
            "serviceAccountName": "default",
            "containers": list(containers) or [{"name": "main", "image": IMAGE, "command": ["run"]}],
            **spec,
        },
        "status": status or {"phase": "Pending"},
    }


class FakeApi:
    """The API server's answers by (method, path), and what it was asked."""

    host = "https://127.0.0.1:6443"

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Json | ApiError] = {}
        self.asked: list[tuple[str, str, Json | None]] = []

    def request(self, method: str, path: str, *, query: Any = None, body: Json | None = None, content_type: str = "") -> Json:
        self.asked.append((method, path, copy.deepcopy(body)))
        answer = self.answers.get((method, path))
        if answer is None and method in ("PATCH", "DELETE", "POST"):
            return {}
        if answer is None:
            raise ApiError(404, f"{path} not found")
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def get(self, path: str, **query: str) -> Json:
        return self.request("GET", path)


class FakeProcesses:
    """The runtime, with every start and end in the test's hands."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[Process, list[str], dict[str, str], Path]] = {}
        self.signals: list[tuple[str, str]] = []

    def start(self, process: Process, command: list[str], environment: dict[str, str], directory: Path, log_file: Path) -> None:
        self.started[process.id.split("/")[1]] = (process, command, environment, directory)

    def terminate(self, process: Process) -> None:
        self.signals.append(("TERM", process.id.split("/")[1]))

    def kill(self, process: Process) -> None:
        self.signals.append(("KILL", process.id.split("/")[1]))

    def comes_up(self, name: str, pid: int = 4711) -> None:
        process = self.started[name][0]
        process.pid, process.started_at = pid, "2026-01-01T00:00:01Z"
        process.changed()

    def ends(self, name: str, code: int, **record: Any) -> None:
        process = self.started[name][0]
        process.ended = {"exitCode": code, "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:02Z", **record}
        process.changed()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """One image: example.org/app."""
    file = tmp_path / "images.yaml"
    file.write_text('images:\n  - {match: "example.org/app:*", entrypoint: [serve], path: ["/opt/app"], env: {FROM_IMAGE: "1"}}\n')
    return Images(file, tmp_path)


@pytest.fixture
def bench(api: FakeApi, images: Images, tmp_path: Path) -> Bench:
    from tests.unit.local.kubelet.bench import Bench

    return Bench(api, images, tmp_path / "pods")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from tests.unit.local.kubelet.bench import Clock

    return Clock(monkeypatch)
