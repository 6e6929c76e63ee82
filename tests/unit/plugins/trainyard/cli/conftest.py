"""The command against a server on loopback that answers as Airflow and the app do; each test says what it holds.

The command runs in this process by its real entry, with real HTTP: argument parsing, errors and exit codes included.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

VERSIONS = [{"version": "1.0.0", "released": "2020-01-01T00:00:00+00:00"}, {"version": "1.1.0", "released": "2020-02-01T00:00:00+00:00"}]


def pipeline(name: str, tenant: str, **changes: Any) -> dict[str, Any]:
    """A pipeline as ``/trainyard/pipelines`` tells it."""
    return {
        "dag_id": f"train_{tenant}_{name}", "tenant": tenant, "pipeline": name, "description": "", "dataset": "digits",
        "versions": VERSIONS, "package": None, "build": "trainer.models.mlp:build", "model": name,
        "slots": 3, "schedule": None, "paused": False,
    } | changes  # fmt: skip


def step(name: str, state: str | None, **changes: Any) -> dict[str, Any]:
    """A task instance as a run's document tells it."""
    start = None if state in (None, "scheduled", "queued") else "2026-03-01T10:00:00+00:00"
    end = "2026-03-01T10:00:05+00:00" if state in ("success", "failed", "skipped") else None
    return {"step": name, "index": None, "state": state, "try": 1, "start": start, "end": end} | changes


def document(state: str, steps: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A run as ``/trainyard/runs/…`` tells it."""
    return {
        "run": "digits-mlp-0123456789", "dag_id": "train_vision_digits-mlp", "run_id": "manual__2026-03-01T10:00:00+00:00",
        "tenant": "vision", "pipeline": "digits-mlp", "dataset": "digits", "dataset_version": "1.1.0", "state": state, "run_type": "manual",
        "requested_by": "alice", "note": None, "queued": None, "start": "2026-03-01T10:00:00+00:00", "end": None, "seconds": 10.0,
        "steps": steps, "progress": None, "generation": None, "replicas": [], "result": None,
    } | changes  # fmt: skip


EXPORTED = {
    "outcome": "exported",
    "metrics": {"accuracy": 0.97, "loss": 0.1},
    "model": "digits-mlp",
    "model_version": 3,
    "dataset_version": "1.1.0",
}
"""The result of a run that ended well."""


@dataclass
class Server:
    """What the server holds, and what it was asked."""

    url: str = ""
    token: str = "good"
    user: str = "alice"
    pipelines: list[dict[str, Any]] = field(default_factory=lambda: [pipeline("digits-mlp", "vision")])
    problems: list[str] = field(default_factory=list)
    pending: list[list[str]] = field(default_factory=list)
    """What is pending at each look; nothing after the last."""
    documents: list[dict[str, Any]] = field(default_factory=list)
    """A run's document at each look; the last stays."""
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    """Answers to other requests, by method and path."""
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    def bodies(self, method: str, path: str) -> list[Any]:
        return [body for m, p, body in self.asked if (m, p) == (method, path)]

    async def answer(self, request: Request) -> Response:
        raw = await request.body()
        path = unquote(urlsplit(str(request.url)).path)
        try:
            body: Any = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        query = parse_qs(urlsplit(str(request.url)).query)
        self.asked.append((request.method, path, body if body is not None else query))
        if path == "/auth/token":
            if body["password"] != "right":
                return JSONResponse({"detail": "Invalid credentials"}, 401)
            return JSONResponse({"access_token": self.token}, 201)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return JSONResponse({"detail": "Invalid JWT token"}, 401)
        status, answer = self._known(request.method, path)
        if isinstance(answer, bytes):
            return Response(answer, status, headers={"Trainyard-Cursor": "end", "Trainyard-State": "ended"})
        return JSONResponse(answer, status)

    def _known(self, method: str, path: str) -> tuple[int, Any]:
        if (method, path) in self.answers:
            return self.answers[method, path]
        if path == "/trainyard/me":
            return 200, {"user": self.user}
        if path == "/trainyard/pipelines":
            return 200, {"pipelines": self.pipelines, "pending": self.pending.pop(0) if self.pending else [], "problems": self.problems}
        if self.documents and path == "/trainyard/resolve":
            return 200, {key: self.documents[0][key] for key in ("run", "dag_id", "run_id", "tenant", "pipeline")}
        if self.documents and path == f"/trainyard/runs/{self.documents[0]['dag_id']}/{self.documents[0]['run_id']}":
            return 200, self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]
        if method == "POST" and path.endswith("/dagRuns"):
            return 200, {"dag_id": self.documents[0]["dag_id"], "dag_run_id": self.documents[0]["run_id"]}
        return 404, {"detail": f"nothing at {path}"}


@pytest.fixture(scope="session")
def _listener() -> Iterator[tuple[str, dict[str, Server]]]:
    """One server for the session: what it holds is the present test's."""
    present: dict[str, Server] = {}

    async def answer(request: Request) -> Response:
        return await present["server"].answer(request)

    methods = ["GET", "POST", "PATCH", "PUT", "DELETE"]
    app = Starlette(routes=[Route("/{rest:path}", answer, methods=methods)])
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # now, not when the thread comes to it: the first test may be quicker
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", present
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture
def server(_listener: tuple[str, dict[str, Server]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """The server; the person is logged in, and is in an empty folder."""
    url, present = _listener
    present["server"] = made = Server(url)
    for name in ("TRAINYARD_CONFIG", "TRAINYARD_STATE", "TRAINYARD_URL", "TRAINYARD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINYARD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("trainyard.cli.following.POLL_S", 0.01)
    monkeypatch.setattr("trainyard.cli.logs.POLL_S", 0.01)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "session.json").write_text(json.dumps({"url": url, "token": made.token, "user": made.user}))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return made


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Trainyard:
    """Runs the command as a shell would."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str) -> Done:
        from trainyard.cli.main import app

        self._monkeypatch.setattr(sys, "argv", ["trainyard", *words])
        self._capsys.readouterr()
        try:
            app()
            code = 0
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)


@pytest.fixture
def trainyard(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Trainyard:
    return Trainyard(capsys, monkeypatch)


@pytest.fixture
def shapes() -> Any:
    """The shapes of what the server tells: ``pipeline``, ``step``, ``document``."""
    return sys.modules[__name__]
