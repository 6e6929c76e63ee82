"""`make run`'s own judgement: what its table says and when it is 0. The chain itself is tests/e2e's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.demo import Demo, DemoError, progress_line
from local.stack.daemon import hold
from local.stack.state import CHECKOUT, State

GOOD = {
    "state": "success",
    "outcome": "exported",
    "accuracy": 0.9712,
    "dataset_version": "1.0.0",
    "model": "mnist-cnn",
    "model_version": 3,
    "seconds": 80.5,
    "steps": {"check": 2.0, "train": 40.25, "gate": None},
}


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    one = Demo(State.at(tmp_path), "mnist-cnn", [], [])
    one.end, one.pods, one.model = dict(GOOD), [], tmp_path / "models" / "mnist-cnn" / "3"
    return one


def test_all_is_well(demo: Demo) -> None:
    lines, well = demo.table({})
    assert well
    text = "\n".join(lines)
    for said in ("exported (success)", "0.9712", "1.0.0", "mnist-cnn version 3: ", "models/mnist-cnn/3", "40.2 s", "80.5 s"):
        assert said in text
    assert [line.split() for line in lines if " left" in line] == [["pods", "left", "0"], ["processes", "left", "0"]]


@pytest.mark.parametrize(
    "change",
    [{"state": "failed"}, {"outcome": "rejected", "reason": "accuracy 0.5 is below 0.95"}, {"outcome": "unchanged"}, {"accuracy": None}],
)
def test_anything_but_an_exported_model_with_its_accuracy_is_not_well(demo: Demo, change: dict[str, Any]) -> None:
    demo.end |= change
    lines, well = demo.table({})
    assert not well
    if change.get("reason"):
        assert any(change["reason"] in line for line in lines)


def test_a_process_or_a_pod_that_is_left_is_named_and_not_well(demo: Demo) -> None:
    lines, well = demo.table({4711: "sleep 600"})
    assert not well
    assert any("4711 sleep 600" in line for line in lines)
    demo.pods = ["tenant-vision/ps-0"]
    lines, well = demo.table({})
    assert not well
    assert any("tenant-vision/ps-0" in line for line in lines)


def test_pods_that_were_not_counted_are_not_zero_pods(demo: Demo) -> None:
    demo.pods = None
    lines, well = demo.table({})
    assert not well
    assert any("not counted" in line for line in lines)


def test_a_model_that_was_not_downloaded_is_not_well(demo: Demo) -> None:
    demo.model = None
    assert not demo.table({})[1]


def test_progress_says_what_is_known() -> None:
    whole = {"step": 120, "total_steps": 900, "loss": 0.25, "examples_per_second": 851.3}
    assert progress_line(whole) == "  training: step 120/900, loss 0.2500, 851 examples/s"
    assert progress_line({"step": 1}) == "  training: step 1"


def make_run(state: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program, where it is refused before anything starts."""
    command = [sys.executable, "-m", "local.demo", *words]
    env = {**os.environ, **environment, "TRAINYARD_STATE": str(state)}
    return subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=60)


def test_a_state_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", Path("/proc/sys/ty")):
        done = make_run(place)
        assert done.returncode == 1
        assert done.stderr.startswith(f"✗ cannot make the state folder {place}: ")
        assert done.stderr.count("\n") == 1


def test_a_port_base_that_is_no_number_is_told(tmp_path: Path) -> None:
    done = make_run(tmp_path, TRAINYARD_PORT_BASE="abc")
    assert done.returncode == 1
    assert "✗ TRAINYARD_PORT_BASE=abc: expected a port number" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_processes_of_another_make_run_are_not_what_this_one_left(tmp_path: Path) -> None:
    state = State.at(tmp_path)
    lock = hold(state)
    assert lock is not None
    state.write({"phase": "starting"})
    demo = Demo(state, "mnist-cnn", [], [])
    try:
        with pytest.raises(DemoError, match="is being started by pid"):
            demo.bring_up()
        assert demo.platform is None  # what is not ours is neither stopped nor counted
    finally:
        lock.release()


def test_a_pipeline_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Of the checkout's configuration: another that the shell names is passed over, and that is said."""
    done = make_run(tmp_path / "state", "no-such", TRAINYARD_CONFIG=str(tmp_path / "elsewhere"))
    assert done.returncode == 1
    assert "TRAINYARD_CONFIG is passed over" in done.stdout
    assert f"✗ {CHECKOUT / 'config'} has no pipeline 'no-such': it has " in done.stdout
    assert "mnist-cnn" in done.stdout
    assert not (tmp_path / "state" / "state.json").exists()
    assert "TRAINYARD_CONFIG" not in make_run(tmp_path / "state", "no-such", TRAINYARD_CONFIG="").stdout
