"""The way to Airflow: its public REST API (``/api/v2``) and ours in the same server (``/trainyard``), by the person's token.

Every failure leaves as one of :mod:`trainyard.errors` with the server's own words, so that no command handles status codes itself.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainyard.cli.choosing import Known
from trainyard.cli.session import Session
from trainyard.errors import ConfigError, NotFoundError, RefusedError, TrainyardError, UnavailableError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
TRIGGER_AGAIN_S = (1.0, 3.0)
"""Pauses between tries to begin a run that the server could not."""


class BadRequestError(TrainyardError):
    """Raised when the server says that the request is wrong (400, 409, 422), in its words."""


def segment(text: str) -> str:
    """``text`` as one segment of a path: run ids hold ``:`` and ``+``."""
    return quote(text, safe="")


def explain(body: bytes, status: int) -> str:
    """What a refusing answer says, as one line; Airflow has three shapes for it."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}"
    if isinstance(detail, Mapping):
        detail = detail.get("message") or detail.get("reason") or detail
    if isinstance(detail, list):
        detail = "; ".join(
            f"{'.'.join(str(part) for part in item.get('loc', []))}: {item.get('msg', item)}" if isinstance(item, Mapping) else str(item)
            for item in detail
        )
    # Airflow passes on a schema's whole complaint, of which the first line says it all.
    return str(detail).strip().partition("\n\nFailed validating")[0] or f"HTTP {status}"


class Client:
    """One person's conversation with one Airflow.

    Raises from every call: :class:`UnavailableError` (no answer, or a fault of the server's), :class:`RefusedError` (401, 403),
    :class:`NotFoundError` (404), :class:`BadRequestError` (other 4xx). From its making: :class:`ConfigError`, a token that cannot be one.
    """

    def __init__(self, session: Session, *, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        self.session = session
        headers = {"Accept": "application/json"}
        if session.token:
            if not session.token.isascii():
                raise ConfigError("the token holds letters that no token has (it is not ASCII): copy it again, whole and alone")
            headers["Authorization"] = f"Bearer {session.token}"
        self._http = httpx.Client(
            base_url=session.url,
            headers=headers,
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=not session.on_this_machine,  # a company's proxy knows nothing of this machine's loopback
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def request(
        self, method: str, path: str, *, json: Any = None, params: Mapping[str, Any] | None = None, content: bytes | None = None
    ) -> httpx.Response:
        """The answer to one request; 2xx only."""
        import httpx

        try:
            answer = self._http.request(method, path, json=json, params=params, content=content)
        except httpx.TimeoutException as e:
            raise UnavailableError(
                f"{self.session.url} did not answer in time ({type(e).__name__}): is the server overloaded? try again"
            ) from e
        except httpx.HTTPError as e:
            raise UnavailableError(f"cannot reach {self.session.url} ({e}): is it up? `trainyard up` starts one of your own") from e
        if answer.is_success:
            return answer
        text = explain(answer.content, answer.status_code)
        match answer.status_code:
            case 401:
                raise RefusedError(f"{self.session.url} does not know this login any more ({text}): `trainyard login {self.session.url}`")
            case 403:
                who = f"`{self.session.user}`" if self.session.user else "this login"
                raise RefusedError(f"{who} may not do this: {text}")
            case 405 | 501:
                raise BadRequestError(f"{self.session.url} does not answer like an Airflow (HTTP {answer.status_code}): check the address")
            case 404:
                # A 404 that says nothing of its own is of a server that does not know the path.
                known = text not in ("Not Found", "HTTP 404")
                raise NotFoundError(text if known else f"{self.session.url}{path.split('?')[0]} does not exist: is it a Trainyard?")
            case status if status >= 500:
                raise UnavailableError(f"{self.session.url}: {text}")
            case _:
                raise BadRequestError(text)

    def json(self, method: str, path: str, *, json: Any = None, params: Mapping[str, Any] | None = None) -> Any:
        """The answer's document.

        Raises:
            UnavailableError: also when the answer is no JSON, e.g. a proxy's login page.
        """
        answer = self.request(method, path, json=json, params=params)
        try:
            return answer.json()
        except ValueError as e:
            raise UnavailableError(f"{self.session.url}{path} answered no JSON: is that address an Airflow with Trainyard?") from e

    # Airflow's own API ---------------------------------------------------------------------------------------------------------

    def token(self, user: str, password: str) -> str:
        """A token for a user of Airflow's login; it lives as long as the deployment says (24 h unless changed)."""
        token = self.json("POST", "/auth/token", json={"username": user, "password": password}).get("access_token")
        if not isinstance(token, str):
            raise UnavailableError(f"{self.session.url}/auth/token gave no token: log in with `--token` instead")
        return token

    def trigger(self, dag_id: str, version: str | None, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Starts a run of a dataset version (None: the newest released).

        The run's id is made here, so that what a server answered badly can be asked again: one that began all the same is found by it.
        (Airflow on SQLite refuses a write now and then, when tasks start at the same moment: "database is locked".)
        """
        parts = ["manual", datetime.now(UTC).isoformat(), *([version] if version else []), secrets.token_hex(4)]
        run_id = "__".join(parts)
        body = {"dag_run_id": run_id, "logical_date": None, "partition_key": version, "conf": dict(conf)}
        runs = f"/api/v2/dags/{segment(dag_id)}/dagRuns"
        for pause in TRIGGER_AGAIN_S:
            try:
                return dict(self.json("POST", runs, json=body))
            except UnavailableError:
                time.sleep(pause)
            try:
                return dict(self.json("GET", f"{runs}/{segment(run_id)}"))
            except (NotFoundError, UnavailableError):
                continue
        return dict(self.json("POST", runs, json=body))

    def mark_failed(self, dag_id: str, run_id: str, note: str) -> None:
        """Ends a run: its tasks fail, its pods are taken down by ``clean_up``."""
        self.json("PATCH", f"/api/v2/dags/{segment(dag_id)}/dagRuns/{segment(run_id)}", json={"state": "failed", "note": note})

    def note(self, dag_id: str, run_id: str, note: str) -> None:
        """Leaves a note at a run, for people to read in Airflow."""
        self.json("PATCH", f"/api/v2/dags/{segment(dag_id)}/dagRuns/{segment(run_id)}", json={"note": note})

    def clear_tasks(self, dag_id: str, run_id: str, tasks: list[str]) -> int:
        """Lets tasks of a run, and what follows them, run again; says how many."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": tasks,
            "only_failed": False,
            "include_downstream": True,
            "reset_dag_runs": True,
        }
        return len(self.json("POST", f"/api/v2/dags/{segment(dag_id)}/clearTaskInstances", json=body)["task_instances"])

    def form(self, dag_id: str) -> dict[str, Any]:
        """The parameters of a DAG's form by name."""
        return dict(self.json("GET", f"/api/v2/dags/{segment(dag_id)}/details").get("params") or {})

    def why_failed(self, dag_id: str, run_id: str, step: str, index: int | None, attempt: int) -> str | None:
        """The message of the exception that ended a task, from its log in Airflow; None if there is none (its worker was killed)."""
        path = f"/api/v2/dags/{segment(dag_id)}/dagRuns/{segment(run_id)}/taskInstances/{segment(step)}/logs/{attempt}"
        entries = self.json("GET", path, params={"full_content": "true", "map_index": -1 if index is None else index}).get("content")
        found = None
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("error_detail"):
                found = str(entry["error_detail"][0].get("exc_value") or "").strip()
        return found or None

    def backfill(self, body: Mapping[str, Any], *, dry_run: bool) -> dict[str, Any]:
        return dict(self.json("POST", f"/api/v2/backfills{'/dry_run' if dry_run else ''}", json=dict(body)))

    # Ours ----------------------------------------------------------------------------------------------------------------------

    def me(self) -> dict[str, Any]:
        return dict(self.json("GET", "/trainyard/me"))

    def pipelines(self, name: str = "", *, waiting: Callable[[], None] = lambda: None, limit_s: float = 120.0) -> Known:
        """What the person may see, after Airflow has read the pipeline ``name`` if it is about to; ``waiting`` is called once if so.

        Airflow reads a new file within seconds of its start, on a busy machine within a minute.
        """
        deadline, told = time.monotonic() + limit_s, False
        while True:
            found = self.json("GET", "/trainyard/pipelines")
            if name.rpartition("/")[2] not in found["pending"] or time.monotonic() > deadline:
                return Known(found["pipelines"], tuple(found["problems"]))
            if not told:
                told = True
                waiting()
            time.sleep(1)

    def tenants(self) -> list[dict[str, Any]]:
        return list(self.json("GET", "/trainyard/tenants")["tenants"])

    def runs(self, pipeline: str | None, limit: int) -> list[dict[str, Any]]:
        params = {"limit": limit} | ({"pipeline": pipeline} if pipeline else {})
        return list(self.json("GET", "/trainyard/runs", params=params)["runs"])

    def resolve(self, run: str) -> dict[str, Any]:
        """The run that a person means: its short name (or the start of one), ``dag_id/run_id``, or a pipeline, for its latest."""
        return dict(self.json("GET", "/trainyard/resolve", params={"run": run}))

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        return dict(self.json("GET", f"/trainyard/runs/{segment(dag_id)}/{segment(run_id)}"))

    def replicas(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return list(self.json("GET", f"/trainyard/runs/{segment(dag_id)}/{segment(run_id)}/logs")["replicas"])

    def log(self, dag_id: str, run_id: str, replica: str, cursor: str) -> tuple[bytes, str, str]:
        """A replica's log from ``cursor`` (empty: the beginning): bytes, the next cursor, ``more`` | ``waiting`` | ``ended``."""
        path = f"/trainyard/runs/{segment(dag_id)}/{segment(run_id)}/logs/{segment(replica)}"
        answer = self.request("GET", path, params={"cursor": cursor})
        return answer.content, answer.headers["Trainyard-Cursor"], answer.headers["Trainyard-State"]

    def publish(self, dag_id: str, wheel: bytes, sha256: str) -> dict[str, Any]:
        return dict(self.request("POST", f"/trainyard/packages/{segment(dag_id)}", params={"sha256": sha256}, content=wheel).json())

    def models(self, dag_id: str | None) -> dict[str, Any]:
        return dict(self.json("GET", "/trainyard/models" + (f"/{segment(dag_id)}" if dag_id else "")))

    def model_files(self, dag_id: str, version: str) -> dict[str, Any]:
        return dict(self.json("GET", f"/trainyard/models/{segment(dag_id)}/{segment(version)}"))

    def local_run(self, dag_id: str, version: str | None, values: Mapping[str, Any]) -> dict[str, Any]:
        """What one process needs to train on the real shards: a run spec and presigned links."""
        return dict(self.json("POST", f"/trainyard/local/{segment(dag_id)}", json={"version": version, "values": dict(values)}))
