"""What the containers of docker-compose.yaml do around Airflow's own commands: ``python -m trainyard_compose init|run|health``.

``init`` makes the database, the administrator's password and what ``trainyard sync`` makes; ``run WORDS…`` becomes ``airflow WORDS…`` with
the settings that sync has written; ``health PART`` asks the API server for a part of Airflow. Standard library only: ``health`` runs every
few seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

STATE = Path(os.environ.get("TRAINYARD_STATE", "/work"))
HOME = STATE / "airflow"
SETTINGS = HOME / "trainyard.env.json"
ADMIN = "admin"
HEALTH_URL = "http://airflow-api-server:8080/api/v2/monitor/health"


def init() -> int:
    """Everything that must be there before Airflow starts; may be run again at any time."""
    HOME.mkdir(parents=True, exist_ok=True)
    passwords = HOME / "passwords.json"
    known = json.loads(passwords.read_text(encoding="utf-8")) if passwords.exists() else {}
    known[ADMIN] = os.environ["AIRFLOW_ADMIN_PASSWORD"]
    write_private(passwords, json.dumps(known, indent=2) + "\n")
    for words in (["airflow", "db", "migrate"], [sys.executable, "-m", "trainyard.upkeep", "sync", "--state", str(STATE)]):
        done = subprocess.run(words, check=False)
        if done.returncode:
            print(f"init: `{' '.join(words)}` ended with {done.returncode}", file=sys.stderr)
            return done.returncode
    return 0


def run(words: list[str]) -> int:
    """Becomes that command of Airflow."""
    try:
        settings = json.loads(SETTINGS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        print(f"run: {SETTINGS} is not there: the service airflow-init makes it", file=sys.stderr)
        return 1
    os.execvpe("airflow", ["airflow", *words], {**os.environ, **settings})


def health(part: str) -> int:
    """0 when Airflow calls the part healthy."""
    with urllib.request.urlopen(HEALTH_URL, timeout=5) as answer:
        return 0 if (json.load(answer).get(part) or {}).get("status") == "healthy" else 1


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, for this user's eyes."""
    partial = path.with_suffix(".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(path)


def main(words: list[str]) -> int:
    match words:
        case ["init"]:
            return init()
        case ["run", *rest] if rest:
            return run(rest)
        case ["health", part]:
            try:
                return health(part)
            except (OSError, ValueError) as error:
                print(f"health: {error}", file=sys.stderr)
                return 1
    print("usage: python -m trainyard_compose init | run AIRFLOW-COMMAND… | health PART", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
