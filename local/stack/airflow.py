"""Airflow on this machine: SQLite, LocalExecutor, each component started by us (`airflow standalone` leaves children behind).

Its settings are rendered into AIRFLOW_HOME/airflow.cfg, ours with those of `trainyard sync` on top, so that `AIRFLOW_HOME=… airflow …`
by hand sees what the components see. Secrets are made once and kept. Nothing here knows a Dag, a tenant or a step.
"""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from local.stack.events import StackError
from local.stack.state import CHECKOUT, State, write_private
from local.stack.supervisor import Component

ADMIN = "admin"
COMPONENTS = ("airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer")
PREFIX = "AIRFLOW__"


@dataclass(frozen=True)
class Airflow:
    """The Airflow of one state folder."""

    state: State
    ports: Mapping[str, int]

    @property
    def home(self) -> Path:
        return self.state.airflow

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['airflow']}"

    @property
    def passwords_file(self) -> Path:
        return self.home / "passwords.json"

    @property
    def environment_file(self) -> Path:
        """What `trainyard sync` writes: AIRFLOW__SECTION__KEY -> value."""
        return self.home / "trainyard.env.json"

    # ---------------------------------------------------------------------------------------------------------- settings
    def settings(self) -> dict[str, str]:
        """AIRFLOW__SECTION__KEY -> value: ours, then sync's. Raises StackError when sync's file is not such an object."""
        kept = self._secrets()
        cores = os.cpu_count() or 1
        empty = self.home / "no-dags"
        bundle = {"name": "empty", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(empty)}}
        ours = {
            "CORE__EXECUTOR": "LocalExecutor",
            # A task is a thin client of pods: more of them than cores, but each is a process of 150 MB.
            "CORE__PARALLELISM": str(max(8, 2 * cores)),
            "CORE__LOAD_EXAMPLES": "False",
            # A bundle holds Dag files alone; the safe mode would skip those that do not spell the word `airflow`.
            "CORE__DAG_DISCOVERY_SAFE_MODE": "False",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__MULTI_TEAM": "True",
            "CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
            "CORE__DAGS_FOLDER": str(empty),
            "CORE__FERNET_KEY": kept["fernet_key"],
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            # No name service is asked who we are: on a laptop that can take seconds, for every task.
            "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home / 'airflow.db'}",
            "LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
            "LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(self.home / "logs" / "dag_processor"),
            "LOGGING__COLORED_CONSOLE_LOG": "False",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.ports["airflow"]),
            "API__BASE_URL": self.url,
            "API__WORKERS": "1",
            "API__SECRET_KEY": kept["secret_key"],
            "API__INSTANCE_NAME": "Trainyard",
            "API_AUTH__JWT_SECRET": kept["jwt_secret"],
            # 1 s: with the default of 5 s the scheduler fails good deferrable tasks, and a kill takes as long.
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            # An API server that restarts (half a minute on two cores) must not cost a training: with the default of 3 it would.
            "WORKERS__MAX_FAILED_HEARTBEATS": "60",
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
            # After a crash of Airflow a gang is adopted by the next try: soon, not after the default of 300 s.
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
            "DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(self.home / "bundles"),
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "15",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        }
        found = {PREFIX + key: value for key, value in ours.items()} | self._synced()
        users = [user.strip() for user in found[f"{PREFIX}CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",") if user.strip()]
        if not any(user.split(":")[0] == ADMIN for user in users):
            users.insert(0, f"{ADMIN}:admin")
        found[f"{PREFIX}CORE__SIMPLE_AUTH_MANAGER_USERS"] = ",".join(users)
        return found

    def _synced(self) -> dict[str, str]:
        try:
            value = json.loads(self.environment_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StackError(f"{self.environment_file} is not JSON ({error}): run `trainyard sync` to write it again") from error
        if not isinstance(value, dict) or not all(
            isinstance(k, str) and isinstance(v, str) and k.startswith(PREFIX) for k, v in value.items()
        ):
            raise StackError(
                f"{self.environment_file}: expected an object of AIRFLOW__… names and strings: run `trainyard sync` to write it again"
            )
        return value

    def _secrets(self) -> dict[str, str]:
        path = self.home / "secrets.json"
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return {name: str(value[name]) for name in ("fernet_key", "secret_key", "jwt_secret")}
        except (OSError, ValueError, KeyError):
            value = {
                "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "secret_key": secrets.token_urlsafe(32),
                "jwt_secret": secrets.token_urlsafe(64),
            }
            write_private(path, json.dumps(value) + "\n")
            return value

    # ----------------------------------------------------------------------------------------------------------- prepare
    def prepare(self) -> bool:
        """Renders airflow.cfg and the admin's password. Returns whether the settings differ from those of the last start."""
        (self.home / "no-dags").mkdir(exist_ok=True)
        try:
            passwords = json.loads(self.passwords_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            passwords = {}
        if ADMIN not in passwords:
            write_private(self.passwords_file, json.dumps({**passwords, ADMIN: secrets.token_urlsafe(12)}) + "\n")
        text = render(self.settings())
        path = self.home / "airflow.cfg"
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        if changed:
            write_private(path, text)
        return changed

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """For every process of Airflow, and for those that call its command line."""
        return {**base, "AIRFLOW_HOME": str(self.home)}

    # -------------------------------------------------------------------------------------------------------- components
    def migration(self, environment: Mapping[str, str]) -> Component | None:
        """The program that brings the database to this Airflow's schema; None when that was done for this version already."""
        if self._stamp.exists() and self._stamp.read_text(encoding="utf-8") == _version() and (self.home / "airflow.db").exists():
            return None
        return Component("airflow-migrate", [sys.executable, "-m", "airflow", "db", "migrate"], self.home, environment)

    def migrated(self) -> None:
        """Remembers that `migration` ended well."""
        write_private(self._stamp, _version())

    @property
    def _stamp(self) -> Path:
        return self.home / "migrated-to"

    def components(self, environment: Mapping[str, str]) -> list[Component]:
        """The four long-running ones. Logs are read from the folder they share: none of them serves logs on a port."""

        def component(name: str, *words: str, health: str, grace_s: float = 5.0) -> Component:
            program = [sys.executable, "-m", "airflow", *words]
            return Component(name, program, self.home, environment, grace_s, lambda since: self.healthy(health, since), 180.0)

        return [
            # It waits for its clients to hang up, which a page that is open in a browser does not do.
            component("airflow-api-server", "api-server", health="metadatabase", grace_s=2.0),
            # Its executor would wait for running tasks: those are adopted by their next try, waiting gains nothing.
            component("airflow-scheduler", "scheduler", "--skip-serve-logs", health="scheduler", grace_s=1.0),
            component("airflow-dag-processor", "dag-processor", health="dag_processor"),
            component("airflow-triggerer", "triggerer", "--skip-serve-logs", health="triggerer"),
        ]

    # ------------------------------------------------------------------------------------------------------------ health
    def health(self) -> dict[str, Any]:
        """Airflow's own word on its parts (GET /api/v2/monitor/health); {} while it does not answer."""
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:
                value = json.load(answer)
        except (OSError, ValueError, http.client.HTTPException):  # the last: whoever has the port does not speak HTTP
            return {}
        return value if isinstance(value, dict) else {}

    def healthy(self, part: str, since: datetime.datetime | None = None) -> bool:
        """Airflow calls a part healthy for half a minute after it died: with `since`, its last heartbeat must be younger than that."""
        found = self.health().get(part) or {}
        if found.get("status") != "healthy":
            return False
        beat = found.get(f"latest_{part}_heartbeat")
        if since is None or beat is None:  # the database has no heartbeat
            return True
        return datetime.datetime.fromisoformat(beat) >= since


def render(settings: Mapping[str, str]) -> str:
    """airflow.cfg of AIRFLOW__SECTION__KEY names; `%` is doubled, since Airflow's parser interpolates."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in settings.items():
        section, _, key = name.removeprefix(PREFIX).partition("__")
        if "\n" in value:
            raise StackError(f"the setting {name} has a line break: Airflow's configuration cannot hold it")
        sections.setdefault(section.lower(), {})[key.lower()] = value.replace("%", "%%")
    lines = ["# Written by local/stack at every start: changes are lost. Settings come from local/stack/airflow.py and `trainyard sync`."]
    for section in sorted(sections):
        lines += ["", f"[{section}]", *(f"{key} = {value}" for key, value in sorted(sections[section].items()))]
    return "\n".join(lines) + "\n"


def _version() -> str:
    """What decides the schema: the versions of Airflow's distributions."""
    return metadata.version("apache-airflow-core")
