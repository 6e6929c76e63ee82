"""`python -m local.stack` where nothing is to be started: what is refused, and in how many lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from local.stack.daemon import hold
from local.stack.state import CHECKOUT, State


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "local.stack", *words],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("more", [[], ["--foreground"]])
def test_while_another_start_is_under_way_the_way_out_is_told(tmp_path: Path, more: list[str]) -> None:
    state = State.at(tmp_path)
    lock = hold(state)
    assert lock is not None
    state.write({"phase": "starting"})
    try:
        done = call("up", "--state", str(tmp_path), "--json", *more)
    finally:
        lock.release()
    said = f"the platform in {tmp_path} is being started by pid {os.getpid()}: wait for it, or use another --state DIR"
    assert (done.returncode, done.stderr) == (3, said + "\n")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"event": "error", "message": said}]


def test_a_port_base_that_is_no_number_is_one_line_and_only_where_ports_are_asked_for(tmp_path: Path) -> None:
    done = call("up", "--state", str(tmp_path), TRAINYARD_PORT_BASE="abc")
    assert done.returncode == 1
    assert done.stderr == "TRAINYARD_PORT_BASE=abc: expected a port number between 1024 and 65535, as in TRAINYARD_PORT_BASE=18080\n"
    done = call("up", "--state", str(tmp_path), "--port-base", "", TRAINYARD_PORT_BASE="19000")
    assert (done.returncode, done.stderr.startswith("--port-base=: expected a port number")) == (1, True)
    done = call("down", "--state", str(tmp_path), TRAINYARD_PORT_BASE="abc")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--no-s3"], "--no-s3: Airflow's side needs an S3 server: give --no-airflow too"),
        (["--no-airflow", "--name", "elsewhere"], "--name and --kubeconfigs go together"),
        (["--no-airflow", "--kubeconfigs", "/nowhere"], "--name and --kubeconfigs go together"),
    ],
)
def test_options_that_contradict_each_other_start_nothing(tmp_path: Path, words: list[str], says: str) -> None:
    done = call("up", "--state", str(tmp_path / "state"), *words)
    assert (done.returncode, done.stderr.count("\n"), done.stderr.startswith(says)) == (1, 1, True), done.stderr
    assert not (tmp_path / "state" / "kube" / "tokens.csv").exists()
