"""The app over a real S3 server and Airflow's real access checks; only who exists and which runs there are is made up.

What is replaced is as far out as possible: Airflow's auth manager (three people, two teams, rules as SimpleAuthManager's), its table of
DAG owners, and the rows of :mod:`trainyard.api.records`. ``test_real_airflow.py`` replaces nothing.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.fixtures.s3 import S3Server
from trainyard.api import access, records
from trainyard.api.application import make_app
from trainyard.api.deployment import Deployment
from trainyard.contract import names
from trainyard.store import Store

CHECKOUT = Path(__file__).resolve().parents[5]
VISION = "train_vision_digits-mlp"
TABULAR = "train_tabular_digits-own"


@dataclass(frozen=True)
class User:
    name: str
    role: str
    team: str

    def get_name(self) -> str:
        return self.name


PEOPLE = {
    "alice": User("alice", "user", "vision"),
    "victor": User("victor", "viewer", "vision"),
    "carol": User("carol", "user", "tabular"),
}


class AuthManager:
    """SimpleAuthManager's rules: a DAG of no team, or one that nobody knows, is open to everyone who is logged in."""

    def __init__(self, owners: dict[str, str]) -> None:
        self.owners = owners
        self.asked: list[tuple[str, str, str | None, str | None]] = []

    async def get_user_from_token(self, token: str) -> User:
        from jwt import InvalidTokenError

        if token not in PEOPLE:
            raise InvalidTokenError
        return PEOPLE[token]

    def is_authorized_dag(self, *, method: str, user: User, access_entity: Any = None, details: Any = None) -> bool:
        self.asked.append((user.name, method, access_entity.name if access_entity else None, details.id if details else None))
        if details and details.team_name and details.team_name != user.team:
            return False
        return method == "GET" or user.role == "user"

    def get_authorized_dag_ids(self, *, user: User, method: str) -> set[str]:
        return {dag_id for dag_id, team in self.owners.items() if team == user.team}


@dataclass
class Airflow:
    """Airflow's rows, as much as is asked for."""

    owners: dict[str, str] = field(default_factory=lambda: {VISION: "vision", "train_vision_mnist-cnn": "vision", TABULAR: "tabular"})
    runs: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, dag_id: str, run_id: str, state: str = "running", **changes: Any) -> str:
        """Adds a run (the newest) and gives its short name."""
        row = {
            "dag_id": dag_id, "run_id": run_id, "state": state, "run_type": "manual", "requested_by": "alice", "partition_key": "1.0.0",
            "note": None, "queued": None, "start": "2026-03-01T10:00:00+00:00", "end": None, "seconds": 12.5,
        }  # fmt: skip
        self.runs.insert(0, row | changes)
        return names.run_name(dag_id.split("_", 2)[2], dag_id, run_id)


@dataclass
class World:
    """A test's app, its Airflow and its S3."""

    app: Any
    airflow: Airflow
    auth: AuthManager
    prefix: str
    server: S3Server
    config: Path

    def store(self, tenant: str = "vision", *, models: bool = False) -> Store:
        bucket = (names.models_bucket if models else names.data_bucket)(self.prefix, tenant)
        return Store(bucket, self.server.endpoint, self.server.region, self.server.access_key, self.server.secret_key)

    def ask(self, who: str | None, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {who}"} if who else {}
        with TestClient(self.app) as client:
            return client.request(method, path, headers=headers, **options)


@pytest.fixture(scope="session")
def bucket_prefix(s3_server: S3Server) -> str:
    """The tenants' buckets, made once: each bucket of this server takes volumes of its own, of which there are not so many."""
    prefix = f"t{secrets.token_hex(4)}"
    for tenant in ("vision", "tabular"):
        for bucket in (names.data_bucket(prefix, tenant), names.models_bucket(prefix, tenant)):
            s3_server.client().create_bucket(Bucket=bucket)
    return prefix


@pytest.fixture
def world(s3_server: S3Server, bucket_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The app over the sample configuration; the tenants' buckets are empty."""
    config = tmp_path / "config"
    shutil.copytree(CHECKOUT / "config", config)
    prefix = bucket_prefix
    profile = config / "clusters" / "embedded.yaml"
    profile.write_text(profile.read_text().replace("bucket_prefix: trainyard", f"bucket_prefix: {prefix}"))
    keys = tmp_path / "s3.json"
    keys.write_text(json.dumps({"endpoint": s3_server.endpoint, "access_key": s3_server.access_key, "secret_key": s3_server.secret_key}))
    monkeypatch.setenv("TRAINYARD_S3_ENDPOINT", s3_server.endpoint)
    monkeypatch.setenv("TRAINYARD_S3_CREDENTIALS", str(keys))
    monkeypatch.delenv("TRAINYARD_CLUSTER", raising=False)
    airflow = Airflow()
    auth = AuthManager(airflow.owners)
    monkeypatch.setattr("trainyard.api.access.get_auth_manager", lambda: auth)
    monkeypatch.setattr("airflow.api_fastapi.core_api.security.get_auth_manager", lambda: auth)
    monkeypatch.setattr(access.DagModel, "get_team_name", staticmethod(airflow.owners.get))
    _fake_records(airflow, monkeypatch)
    deployment = Deployment(config, owner=access.owner, teams_in_use=lambda: True)
    made = World(make_app(deployment), airflow, auth, prefix, s3_server, config)
    for tenant in ("vision", "tabular"):
        for models in (False, True):
            store = made.store(tenant, models=models)
            for folder in {info.key.partition("/")[0] for info in store.list("")}:
                store.delete_prefix(f"{folder}/")
    return made


def _fake_records(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(dag_id: str, run_id: str) -> dict[str, Any] | None:
        return next((row for row in airflow.runs if (row["dag_id"], row["run_id"]) == (dag_id, run_id)), None)

    monkeypatch.setattr(records, "run", run)
    monkeypatch.setattr(records, "dags", lambda ids: {dag_id: {"paused": False} for dag_id in ids if dag_id in airflow.owners})
    monkeypatch.setattr(records, "latest_runs", lambda ids, limit: [row for row in airflow.runs if row["dag_id"] in ids][:limit])
    monkeypatch.setattr(records, "run_ids", lambda dag_id: [row["run_id"] for row in airflow.runs if row["dag_id"] == dag_id])
    monkeypatch.setattr(
        records,
        "runs_named",
        lambda run_id, ids: [row["dag_id"] for row in airflow.runs if row["run_id"] == run_id and row["dag_id"] in ids],
    )
    monkeypatch.setattr(records, "steps", lambda dag_id, run_id: airflow.steps.get(run_id, []))
