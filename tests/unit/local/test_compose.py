"""docker-compose.yaml and its images say the same as what `trainyard up` starts: two files of settings, held together here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.stack import ports
from local.stack.airflow import Airflow
from local.stack.s3 import S3
from local.stack.state import CHECKOUT, State

OF_A_MACHINE = {
    # Where things lie and by which secrets: the container's own, from .env or the image.
    *("API__BASE_URL", "API__HOST", "API__PORT", "API__SECRET_KEY", "API_AUTH__JWT_SECRET"),
    *("CORE__EXECUTION_API_SERVER_URL", "CORE__FERNET_KEY"),
    *("CORE__DAGS_FOLDER", "CORE__LOAD_EXAMPLES", "CORE__PLUGINS_FOLDER", "DATABASE__SQL_ALCHEMY_CONN"),
    *("LOGGING__BASE_LOG_FOLDER", "LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY", "DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH"),
    # Written by sync.
    "CORE__PARALLELISM",
    *("CORE__SIMPLE_AUTH_MANAGER_USERS", "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"),
}  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((CHECKOUT / "docker-compose.yaml").read_text())
    return document


def test_airflows_settings_are_those_of_one_machine(compose: dict[str, Any], tmp_path: Path) -> None:
    here = {name.removeprefix("AIRFLOW__"): value for name, value in Airflow(State.at(tmp_path), ports.plan(20000)).settings().items()}
    environment = compose["x-airflow"]["environment"]
    there = {name.removeprefix("AIRFLOW__"): value for name, value in environment.items() if name.startswith("AIRFLOW__")}
    wanted = {name: value for name, value in here.items() if name not in OF_A_MACHINE}
    assert {name: value for name, value in there.items() if name not in OF_A_MACHINE} == wanted


def test_the_images_settings_are_those_of_one_machine() -> None:
    dockerfile = (CHECKOUT / "images" / "airflow" / "Dockerfile").read_text()
    assert "AIRFLOW__CORE__PLUGINS_FOLDER=/opt/trainyard/plugins" in dockerfile
    assert "AIRFLOW__CORE__LOAD_EXAMPLES=False" in dockerfile


def test_seaweeds_flags_are_those_of_one_machine(tmp_path: Path) -> None:
    """But for ports and folders, which a container has to itself."""

    def flags(words: list[str]) -> dict[str, str]:
        found = {name: value for name, _, value in (word.removeprefix("-").partition("=") for word in words)}
        own = re.compile(r"dir|s3\.config|s3\.ip\.bind|(master|volume|filer|s3)\.port(\.grpc)?")
        return {name: value for name, value in found.items() if not own.fullmatch(name)}

    here = S3(State.at(tmp_path), ports.plan(20000), Path("weed")).component({}).program[1:]
    start = (CHECKOUT / "images" / "s3" / "start").read_text()
    there = shlex.split(start[start.index("exec weed server") :].replace("\\\n", " "))[2:]
    assert flags(there) == flags(list(here))
    assert len(flags(there)) > 10
    assert "WEED_MASTER_VOLUME_GROWTH_COPY_1=1" in start


def test_no_secret_has_a_default(compose: dict[str, Any]) -> None:
    text = (CHECKOUT / "docker-compose.yaml").read_text()
    used = re.findall(r"\$\{([A-Z0-9_]*(?:PASSWORD|SECRET|KEY)[A-Z0-9_]*)([^}]*)\}", text)
    assert len({name for name, _ in used}) == 7
    assert {rest for _, rest in used} == {":?run local/compose/prepare"}


def test_only_two_ports_are_published_on_loopback(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert published == {"airflow-api-server": ["127.0.0.1:${AIRFLOW_PORT:-18080}:8080"], "s3": ["127.0.0.1:${S3_PORT:-18081}:8333"]}
    profile = yaml.safe_load((CHECKOUT / "config" / "clusters" / "compose.yaml").read_text())
    assert profile["s3"]["public_endpoint"] == "http://127.0.0.1:18081"
    assert profile["s3"]["endpoint"] == "http://s3:8333"


def test_every_service_says_how_it_is_and_how_long_its_end_takes(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name != "airflow-init":
            assert service["healthcheck"]["test"], name
            assert re.fullmatch(r"\d+s", service["stop_grace_period"]), name
