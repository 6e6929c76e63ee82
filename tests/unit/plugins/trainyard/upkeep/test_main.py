"""The program: usage, where storage comes from, and errors of one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract.run_spec import RunSpec
from trainyard.upkeep.__main__ import _parser, _store, main

CHECKOUT = Path(__file__).parents[5]
CLEAN_UP = ["clean-up", "--tenant", "vision", "--run", "r-1"]


def test_storage_comes_from_the_run_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_RUN_SPEC", RunSpec.model_validate(run_spec_document()).to_json())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    store = _store(_parser().parse_args(CLEAN_UP))
    assert (store.bucket, store.endpoint, store.access_key, store.secret_key) == ("data", "http://127.0.0.1:1", "a", "b")
    given = _store(_parser().parse_args([*CLEAN_UP, "--bucket", "other", "--endpoint", "http://127.0.0.1:2", "--region", "eu"]))
    assert (given.bucket, given.endpoint, given.region) == ("other", "http://127.0.0.1:2", "eu")


@pytest.mark.parametrize(
    ("spec", "told"),
    [(None, "neither --bucket nor TRAINYARD_RUN_SPEC"), ("{}", "TRAINYARD_RUN_SPEC holds no run spec of this release")],
)
def test_no_storage_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spec: str | None, told: str
) -> None:
    monkeypatch.delenv("TRAINYARD_RUN_SPEC", raising=False)
    if spec is not None:
        monkeypatch.setenv("TRAINYARD_RUN_SPEC", spec)
    assert main(CLEAN_UP) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_wrong_configuration_is_exit_code_2_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    command = [sys.executable, "-m", "trainyard.upkeep", "sync", "--state", str(tmp_path), "--config", str(tmp_path / "config")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT / "plugins")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr == "config/clusters/embedded.yaml: does not exist (TRAINYARD_CLUSTER); there are none\n"


def test_a_cluster_that_is_not_named_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainyard.upkeep", "sync", "--state", str(tmp_path), "--config", str(CHECKOUT / "config")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT / "plugins")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("no TRAINYARD_KUBECONFIG, no kubeconfig in the cluster profile, and this is no pod")
    assert done.stderr.count("\n") == 1
