"""What the containers of docker-compose.yaml do around Airflow's commands: a program of the test's stands where ``airflow`` would."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[4] / "images" / "airflow" / "trainyard_compose.py"


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Holds an ``airflow`` that says with what it was started."""
    program = tmp_path / "bin" / "airflow"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "airflow $*, $AIRFLOW__CORE__MULTI_TEAM"\n[ "$1" != db ] || exit "${MIGRATION:-0}"\n')
    program.chmod(0o755)
    return program.parent


def call(state: Path, bin_folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    told = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "TRAINYARD_STATE": str(state), **environment}
    return subprocess.run([sys.executable, str(PROGRAM), *words], env=told, capture_output=True, text=True, timeout=60)


def test_airflow_is_started_with_what_sync_has_written(tmp_path: Path, bin_folder: Path) -> None:
    state = tmp_path / "state"
    (state / "airflow").mkdir(parents=True)
    (state / "airflow" / "trainyard.env.json").write_text(json.dumps({"AIRFLOW__CORE__MULTI_TEAM": "written"}))
    done = call(state, bin_folder, "run", "scheduler", "--skip-serve-logs", AIRFLOW__CORE__MULTI_TEAM="before")
    assert (done.returncode, done.stdout) == (0, "airflow scheduler --skip-serve-logs, written\n")


def test_before_the_first_sync_nothing_is_started(tmp_path: Path, bin_folder: Path) -> None:
    done = call(tmp_path / "state", bin_folder, "run", "scheduler")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "the service airflow-init makes it" in done.stderr


def test_the_administrators_password_is_env_files_and_the_members_stay(tmp_path: Path, bin_folder: Path) -> None:
    """Of a migration that fails the exit code is its own, and nothing is synced."""
    state = tmp_path / "state"
    passwords = state / "airflow" / "passwords.json"
    passwords.parent.mkdir(parents=True)
    passwords.write_text(json.dumps({"admin": "old", "alice": "hers"}))
    done = call(state, bin_folder, "init", AIRFLOW_ADMIN_PASSWORD="new", MIGRATION="7")
    assert done.returncode == 7, done.stderr
    assert "init: `airflow db migrate` ended with 7" in done.stderr
    assert json.loads(passwords.read_text()) == {"admin": "new", "alice": "hers"}
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o600


def test_a_part_of_an_airflow_that_does_not_answer_is_not_well(tmp_path: Path, bin_folder: Path) -> None:
    done = call(tmp_path, bin_folder, "health", "scheduler")
    assert (done.returncode, done.stderr.startswith("health: ")) == (1, True)


@pytest.mark.parametrize("words", [(), ("run",), ("health",), ("stop",)])
def test_other_words_are_a_wrong_use(tmp_path: Path, bin_folder: Path, words: tuple[str, ...]) -> None:
    done = call(tmp_path, bin_folder, *words)
    assert (done.returncode, done.stderr.startswith("usage: ")) == (2, True)
