"""What people do to a run in mid-training: cancel it, and let it go on."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.fixtures.platform import Platform, until
from tests.fixtures.shared_platform import CHECKPOINT_EVERY, STEPS


def test_cancel_leaves_nothing_and_retry_goes_on_from_the_checkpoint(platform: Platform) -> None:
    run = platform.begin("digits-long")["run"]
    platform.wait_for_training(run, step=CHECKPOINT_EVERY + 200)
    cancelled = platform.trainyard("cancel", run)
    assert cancelled.code == 0, cancelled.err
    platform.no_pods(within_s=30)
    until(lambda: not platform.trainers(), 15, lambda: f"no process of it is left: {platform.trainers()}")
    ended = platform.status(run)
    assert ended["state"] == "failed", "what was ended is never green"
    assert ended["result"]["outcome"] == "cancelled"

    again = platform.trainyard("retry", run, "--json")
    assert again.code == 0, f"{again.out[-2000:]} {again.err}"
    assert again.end["outcome"] == "exported"
    chief = platform.trainyard("logs", run, "chief-0").out
    assert "going on from step" in chief
    first = [int(line.split("step ")[1].split("/")[0]) for line in chief.splitlines() if "step " in line and f"/{STEPS}" in line]
    lower = [later for earlier, later in itertools.pairwise(first) if later < earlier]
    assert all(step >= CHECKPOINT_EVERY for step in lower), f"it began anew instead of at its checkpoint: {lower}"


@pytest.mark.long
def test_airflow_is_cut_off_from_the_cluster_for_two_minutes(platform: Platform) -> None:
    if platform.cable is None:
        pytest.skip("for a cluster that is there already (TRAINYARD_TEST_CLUSTER): the chaos tests kill the embedded one's API server")
    run = platform.begin("digits-long", "--set", "steps=60000")["run"]
    before = platform.wait_for_training(run, step=600)
    platform.cable.cut()
    time.sleep(120)
    meanwhile = platform.wait_for_training(run, step=before + 1)  # by S3
    platform.cable.mend()
    document = platform.wait_for_end(run, within_s=900)
    assert document["state"] == "success", document
    assert document["generation"] == 1, "Airflow finds the gang again"
    assert before < meanwhile
    chief = platform.trainyard("logs", run, "chief-0").out
    steps = [int(line.split("step ")[1].split("/")[0]) for line in chief.splitlines() if "step " in line and "/60000" in line]
    assert steps == sorted(steps), "no training is lost"
    platform.no_pods()
