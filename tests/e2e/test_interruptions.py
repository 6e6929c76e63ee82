"""What people do to a run in mid-training: cancel it, and let it go on."""

from __future__ import annotations

import itertools

from tests.fixtures.platform import Platform, until


def test_cancel_leaves_nothing_and_retry_goes_on_from_the_checkpoint(platform: Platform) -> None:
    run = platform.begin("digits-long")["run"]
    platform.wait_for_training(run, step=600)
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
    first = [int(line.split("step ")[1].split("/")[0]) for line in chief.splitlines() if "step " in line and "/6000" in line]
    lower = [later for earlier, later in itertools.pairwise(first) if later < earlier]
    assert all(step >= 200 for step in lower), f"it began anew instead of at its checkpoint: {lower}"
