"""The platform of docker-compose.yaml, whole: built by the command that people use, started once, taken down with all of its data.

PostgreSQL's image is made from Debian's packages (no registry can be reached where these tests run), and Compose itself, where the machine
has none, from its Go module. What Docker itself needs is in ``tests/fixtures/docker.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from local.kube.build import ensure as ensure_kube
from local.toolchain import cache_folder
from tests.fixtures.docker import base, engine, run
from tests.fixtures.s3 import free_ports

__all__ = ["base", "engine"]

CHECKOUT = Path(__file__).resolve().parents[2]
COMPOSE_VERSION = "v2.40.3"
PROJECT = "trainyard-test"
TAG = "tested"
POSTGRES = "localhost/trainyard-test/postgres:15"
BUILD_DEADLINE_S = 1500
UP_DEADLINE_S = 600


@dataclass(frozen=True)
class Deployment:
    """One project of Compose."""

    program: tuple[str, ...]
    env_file: Path
    environment: Mapping[str, str]
    home: Path
    values: Mapping[str, str] = field(repr=False)
    """What `prepare` has written."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.environment['AIRFLOW_PORT']}"

    def compose(self, *words: str, timeout_s: float = UP_DEADLINE_S, check: bool = True) -> subprocess.CompletedProcess[str]:
        """``docker compose WORDS…`` of this project."""
        files = ("--project-directory", str(CHECKOUT), "--env-file", str(self.env_file), "--project-name", PROJECT)
        return run(*self.program, *files, *words, timeout_s=timeout_s, check=check, **self.environment)

    def up(self) -> None:
        """Started, and well; the words of what is not well are in the error."""
        done = self.compose("up", "--detach", "--wait", "--wait-timeout", str(UP_DEADLINE_S), check=False)
        if done.returncode:
            logs = self.compose("logs", "--tail", "30", check=False).stdout
            pytest.fail(f"docker compose up: {done.returncode}\n{done.stderr[-3000:]}\n{logs[-8000:]}", pytrace=False)

    def trainyard(self, *words: str, given: str | None = None) -> subprocess.Popen[str]:
        """The command as on a person's own machine: it knows Airflow's address and has its own login."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINYARD_", "AWS_"))}
        program = subprocess.Popen(
            [str(CHECKOUT / ".venv" / "bin" / "trainyard"), *words],
            env={**kept, "TRAINYARD_HOME": str(self.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if given is not None and program.stdin:
            program.stdin.write(given)
            program.stdin.close()
            program.stdin = None
        return program

    def said(self, *words: str, given: str | None = None) -> list[dict[str, Any]]:
        """What the command answers with ``--json``; it must end well."""
        program = self.trainyard(*words, "--json", given=given)
        out, err = program.communicate(timeout=300)
        assert program.returncode == 0, f"trainyard {' '.join(words)}: {program.returncode}\n{out}\n{err}"
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="session")
def compose_program(engine: None) -> tuple[str, ...]:
    """Compose: Docker's plugin, the stand-alone program, or one compiled from its Go module (two minutes, once a machine)."""
    if run("docker", "compose", "version", check=False).returncode == 0:
        return ("docker", "compose")
    cached = cache_folder() / "compose" / COMPOSE_VERSION / "docker-compose"
    for found in (shutil.which("docker-compose"), cached):
        if found and run(str(found), "version", check=False).returncode == 0:
            return (str(found),)
    go = shutil.which("go")
    if go is None:
        pytest.skip("neither Compose nor a `go` to compile it with")
    module = cached.parent / f"making-{os.getpid()}"
    module.mkdir(parents=True)
    try:
        package = "github.com/docker/compose/v2/cmd"
        for words in (
            ("mod", "init", "example.invalid/compose"),
            ("get", "-tool", f"{package}@{COMPOSE_VERSION}"),
            ("build", "-trimpath", "-ldflags=-s -w", "-o", "docker-compose", package),
        ):
            done = subprocess.run(
                [go, *words], cwd=module, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, timeout=1200
            )
            assert done.returncode == 0, f"go {' '.join(words)}:\n{done.stderr[-3000:]}"
        (module / "docker-compose").replace(cached)
    finally:
        shutil.rmtree(module, ignore_errors=True)
    return (str(cached),)


@pytest.fixture(scope="session")
def prepared(compose_program: tuple[str, ...], base: str, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Images and secrets, by ``local/compose/prepare``; nothing runs yet."""
    folder = tmp_path_factory.mktemp("compose")
    kube = ensure_kube(lambda name, value: None)
    told = {"ENV_FILE": str(folder / "env"), "TRAINYARD_TAG": TAG, "BASE": base, "KUBE_BINARY": str(kube)}
    run(str(CHECKOUT / "local" / "compose" / "prepare"), timeout_s=BUILD_DEADLINE_S, **told)
    words = ("docker", "build", "--network", "host", "--build-arg", f"BASE={base}", "--tag", POSTGRES)
    run(*words, str(CHECKOUT / "tests" / "compose" / "postgres"), timeout_s=600)
    airflow_port, s3_port = free_ports(2)
    # A person's laptop is told where S3 is by the profile: the port of this test goes into a copy.
    config = folder / "config"
    shutil.copytree(CHECKOUT / "config", config)
    config.chmod(0o755)
    profile = config / "clusters" / "compose.yaml"
    text = profile.read_text()
    assert "http://127.0.0.1:18081" in text
    profile.write_text(text.replace("http://127.0.0.1:18081", f"http://127.0.0.1:{s3_port}"))
    environment = {
        "AIRFLOW_PORT": str(airflow_port),
        "S3_PORT": str(s3_port),
        "POSTGRES_IMAGE": POSTGRES,
        "TRAINYARD_TAG": TAG,
        "TRAINYARD_CONFIG_FOLDER": str(config),
    }
    values = dict(line.split("=", 1) for line in (folder / "env").read_text().splitlines() if not line.startswith("#"))
    return Deployment(compose_program, folder / "env", environment, folder / "home", values)


@pytest.fixture(scope="session")
def deployment(prepared: Deployment) -> Iterator[Deployment]:
    """Up, and logged in to. After the tests nothing of it may be left."""
    try:
        prepared.up()
        prepared.said("login", prepared.url, "--user", "admin", "--password-stdin", given=prepared.values["AIRFLOW_ADMIN_PASSWORD"] + "\n")
        yield prepared
    finally:
        prepared.compose("--profile", "*", "down", "--volumes", "--remove-orphans", check=False)
    for what in ("container", "volume", "network"):
        words = ("ls", *(("--all",) if what == "container" else ()), "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
        assert run("docker", what, *words).stdout == "", what
