"""`make run` as a program: the whole chain from nothing to nothing, and what is left when it is interrupted or killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.leftovers import processes_of
from tests.fixtures.platform import CHECKOUT, clean_environment, free_block, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Demo:
    def __init__(self, state: Path) -> None:
        self.state = state
        command = [sys.executable, "-m", "local.demo", "digits-mlp", "--state", str(state), "--port-base", str(free_block(20))]
        self.process = subprocess.Popen(
            command, cwd=CHECKOUT, env=clean_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.said: list[str] = []

    def until_it_says(self, words: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if words in line:
                return
        raise AssertionError(f"it ended and never said {words!r}:\n{''.join(self.said)}")

    def end(self, within_s: float) -> int:
        out, _ = self.process.communicate(timeout=within_s)
        self.said.append(out)
        return self.process.returncode

    def nothing_lives(self) -> None:
        until(lambda: not processes_of(self.state), 30, lambda: f"nothing lives: {processes_of(self.state)}")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    one = Demo(tmp_path / "var")
    yield one
    if one.process.poll() is None:
        one.process.kill()
        one.process.wait()
    one.nothing_lives()


def test_from_nothing_to_a_model_and_nothing(demo: Demo) -> None:
    code = demo.end(400)
    text = "".join(demo.said)
    assert code == 0, text
    table = text[text.index("  outcome") :]
    for words in ("exported (success)", "accuracy", "1.1.0", "digits-mlp version 1"):
        assert words in table
    assert "pods left        0" in table
    assert "processes left   0" in table
    assert "examples/s" in text
    assert len(list((demo.state / "models" / "digits-mlp" / "1").rglob("saved_model.pb"))) == 1
    demo.nothing_lives()


def test_ctrl_c_in_training_ends_everything(demo: Demo) -> None:
    demo.until_it_says("train      running")
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.end(120) == 130
    assert "interrupted: stopping everything" in "".join(demo.said)
    demo.nothing_lives()


def test_a_killed_one_leaves_nothing(demo: Demo) -> None:
    demo.until_it_says("Airflow's database")
    demo.process.kill()
    demo.process.wait()
    demo.nothing_lives()


def test_a_second_one_says_that_the_first_is_there(demo: Demo) -> None:
    demo.until_it_says("✓ node")
    command = [sys.executable, "-m", "local.demo", "digits-mlp", "--state", str(demo.state), "--port-base", str(free_block(20))]
    done = subprocess.run(command, cwd=CHECKOUT, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "is being started by pid" in done.stdout
    demo.process.send_signal(signal.SIGINT)
    assert demo.end(120) == 130
