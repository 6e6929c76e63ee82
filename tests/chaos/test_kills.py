"""SIGKILL of each part in mid-training: the run ends well, from its checkpoint, in bounded time, and nothing is left.

One run a case; that the next case's run works is the proof that the part came back whole.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

import pytest

from tests.fixtures.platform import Platform, until
from tests.fixtures.shared_platform import CHECKPOINT_EVERY, STEPS

END_WITHIN_S = 400.0


@pytest.fixture
def run(platform: Platform) -> str:
    """A run that trains and has a checkpoint to go on from."""
    started = str(platform.begin("digits-long")["run"])
    platform.wait_for_training(started, step=CHECKPOINT_EVERY + 200)
    return started


def ends_well(platform: Platform, run: str) -> dict[str, Any]:
    document = platform.wait_for_end(run, END_WITHIN_S)
    assert document["state"] == "success", document
    assert document["result"]["outcome"] == "exported"
    platform.no_pods()
    until(lambda: not platform.trainers(), 15, lambda: f"no process of it is left: {platform.trainers()}")
    return document


def steps_logged(platform: Platform, run: str) -> list[int]:
    """The steps that the chief's log names, over all its attempts in order."""
    text = platform.trainyard("logs", run, "chief-0").out
    return [int(line.split("step ")[1].split("/")[0]) for line in text.splitlines() if "step " in line and f"/{STEPS}" in line]


def went_back_at_most_to_a_checkpoint(steps: list[int]) -> None:
    restarts = [later for earlier, later in itertools.pairwise(steps) if later < earlier]
    assert all(step >= CHECKPOINT_EVERY for step in restarts), f"training began anew instead of at its checkpoint: {restarts}"


def trainer_of(platform: Platform, role: str, *, supervisor: bool) -> int:
    """The pid of a replica's PID 1, or of its training process."""
    for pid, command in platform.trainers().items():
        if "trainer.cli replica" in command and ("trainer.supervisor" in command) is supervisor:
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if f"TRAINYARD_ROLE={role}".encode() in file.read().split(b"\0"):
                        return pid
            except OSError:
                continue
    raise AssertionError(f"no {role} runs: {platform.trainers()}")


LONG_PS, LONG_WORKER = (pytest.param(role, marks=pytest.mark.long) for role in ("ps", "worker"))
"""The gang's own tests kill these too; a whole run for it is for `make test-long`."""


@pytest.mark.parametrize("role", ["chief", LONG_PS, LONG_WORKER])
def test_the_training_process_of_a_replica(platform: Platform, run: str, role: str) -> None:
    os.kill(trainer_of(platform, role, supervisor=False), signal.SIGKILL)
    document = ends_well(platform, run)
    went_back_at_most_to_a_checkpoint(steps_logged(platform, run))
    assert document["generation"] == 1, "a small fault stays inside the gang"


@pytest.mark.long
@pytest.mark.parametrize("role", ["chief", "worker"])
def test_a_whole_container(platform: Platform, run: str, role: str) -> None:
    os.kill(trainer_of(platform, role, supervisor=True), signal.SIGKILL)
    document = ends_well(platform, run)
    went_back_at_most_to_a_checkpoint(steps_logged(platform, run))
    assert document["generation"] == (2 if role == "chief" else 1), "only a gang without its root is made anew"


def test_the_scheduler_and_its_tasks(platform: Platform, run: str) -> None:
    os.kill(platform.pid("airflow-scheduler"), signal.SIGKILL)
    document = ends_well(platform, run)
    steps = steps_logged(platform, run)
    assert steps == sorted(steps), "no training is lost: the next try adopts the gang"
    assert document["generation"] == 1


def test_the_api_server(platform: Platform, run: str) -> None:
    os.kill(platform.pid("kube-apiserver"), signal.SIGKILL)
    document = ends_well(platform, run)
    steps = steps_logged(platform, run)
    assert steps == sorted(steps), "training does not need the API server"
    assert document["generation"] == 1


def test_the_kubelet_takes_its_containers_with_it(platform: Platform, run: str) -> None:
    before = set(platform.trainers())
    os.kill(platform.pid("kubelet"), signal.SIGKILL)
    until(lambda: not before & set(platform.trainers()), 10, "its containers are gone")
    ends_well(platform, run)
    went_back_at_most_to_a_checkpoint(steps_logged(platform, run))


def test_the_starter_takes_everything_with_it_and_the_next_start_goes_on(platform: Platform, run: str) -> None:
    assert platform.process is not None
    os.kill(platform.process.pid, signal.SIGKILL)
    platform.process.wait()
    until(lambda: not platform.processes(), 15, lambda: f"all is gone: {platform.processes()}")
    platform.start()
    ends_well(platform, run)
    went_back_at_most_to_a_checkpoint(steps_logged(platform, run))
