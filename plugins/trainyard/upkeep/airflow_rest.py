"""Airflow's public REST API for the platform's own Dags: a task reaches no database, and its own token opens nothing of other runs.

On one machine `trainyard sync` gives the login ``_upkeep`` (role ``op`` in every team: it may read all and set pools) a password; elsewhere
the administrator does, in the file that ``TRAINYARD_AIRFLOW_CREDENTIALS`` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from trainyard.contract.names import UPKEEP_LOGIN
from trainyard.errors import ConfigError, RefusedError, UnavailableError

CREDENTIALS_VARIABLE: Final = "TRAINYARD_AIRFLOW_CREDENTIALS"
STATE_VARIABLE: Final = "TRAINYARD_STATE"
TIMEOUT_S: Final = 30.0
PAGE: Final = 100
"""Airflow gives no more at a time unless its administrator raised the limit."""


@dataclass(frozen=True)
class Login:
    """Where Airflow is, and who asks."""

    url: str
    user: str
    password: str = field(repr=False)


def find_login(environ: Mapping[str, str] | None = None) -> Login:
    """The login of this process: the credentials' file, else that of the platform on this machine.

    Raises:
        ConfigError: there is none, or the file cannot be used.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get(CREDENTIALS_VARIABLE):
        try:
            value = json.loads(Path(named).read_text(encoding="utf-8"))
            return Login(str(value["url"]).rstrip("/"), str(value["user"]), str(value["password"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            way_out = 'it must be JSON: {"url": …, "user": …, "password": …}'
            raise ConfigError(f"{CREDENTIALS_VARIABLE}={named}: cannot be used ({error!r}): {way_out}") from error
    state = environ.get(STATE_VARIABLE)
    passwords = Path(state or "", "airflow", "passwords.json")
    try:
        return Login(_own_url(), UPKEEP_LOGIN, str(json.loads(passwords.read_text(encoding="utf-8"))[UPKEEP_LOGIN]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"no login for Airflow's REST API: {passwords} has none for {UPKEEP_LOGIN} ({error!r}): "
            f"`trainyard sync` makes one, or {CREDENTIALS_VARIABLE} names a file"
        ) from error


def _own_url() -> str:
    """The server that this Airflow's own tasks speak to: what people's browsers use may not be reachable from here."""
    from airflow.configuration import conf

    execution = conf.get("core", "execution_api_server_url", fallback="") or conf.get("api", "base_url", fallback="")
    return execution.rstrip("/").removesuffix("/execution")


class AirflowRest:
    """One logged-in client. Use as a context manager.

    Raises:
        UnavailableError: Airflow does not answer, or answers what it must not: whoever asks then knows nothing, and does nothing.
        RefusedError: it refuses this login.
    """

    def __init__(self, login: Login) -> None:
        self._client = httpx.Client(base_url=login.url, timeout=TIMEOUT_S, trust_env=False)
        self._url = login.url
        answer = self._send("POST", "/auth/token", json={"username": login.user, "password": login.password})
        self._client.headers["Authorization"] = f"Bearer {answer['access_token']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        return self._send("GET", f"/api/v2{path}", params=params)

    def everything(self, path: str, key: str, **params: Any) -> Iterator[dict[str, Any]]:
        """All entries of a list, page by page."""
        offset = 0
        while True:
            page = self.get(path, limit=PAGE, offset=offset, **params)
            yield from page[key]
            offset += len(page[key])
            if not page[key] or offset >= page["total_entries"]:
                return

    def patch(self, path: str, body: Mapping[str, Any], mask: list[str]) -> dict[str, Any]:
        return self._send("PATCH", f"/api/v2{path}", json=dict(body), params={"update_mask": mask})

    def _send(self, method: str, path: str, **how: Any) -> dict[str, Any]:
        try:
            answer = self._client.request(method, path, **how)
        except httpx.HTTPError as error:
            raise UnavailableError(f"{self._url}{path}: Airflow does not answer: {error}") from error
        if answer.status_code in (401, 403):
            raise RefusedError(f"{self._url}{path}: Airflow refuses {method} ({answer.status_code}): {answer.text[:300]}")
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not answer.is_success or not isinstance(found, dict):
            raise UnavailableError(f"{self._url}{path}: Airflow answers {answer.status_code}: {answer.text[:300]}")
        return found
