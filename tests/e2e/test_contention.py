"""Two gangs of 4 slots in a tenant of 6, and another tenant's run beside them, through Airflow's own scheduler."""

from __future__ import annotations

import datetime
import itertools

from tests.e2e.pod_watch import PodWatch
from tests.fixtures.platform import Platform
from trainyard.contract import names
from trainyard.settings import load

GANG = 4
"""2 workers, 1 parameter server, the chief."""
LONG_ENOUGH = ("--set", "workers=2", "--set", "steps=1500")


def train_of(platform: Platform, run: dict[str, str]) -> dict[str, datetime.datetime]:
    """When the run's gang was ready to begin for Airflow, began, and ended."""
    found = platform.api("GET", f"/dags/{run['dag_id']}/dagRuns/{run['run_id']}/taskInstances/train").json()
    return {key: datetime.datetime.fromisoformat(found[key]) for key in ("scheduled_when", "start_date", "end_date")}


def test_two_gangs_that_do_not_fit_together_follow_each_other_and_nobody_else_waits(platform: Platform) -> None:
    settings = load(platform.config, environ={})
    vision, tabular = settings.tenants["vision"], settings.tenants["tabular"]
    assert GANG <= vision.slots < 2 * GANG
    core = platform.core()
    with (
        PodWatch(core, names.namespace("vision"), vision.slot.cpu) as theirs,
        PodWatch(core, names.namespace("tabular"), tabular.slot.cpu) as others,
    ):
        two = [platform.begin("digits-long", *LONG_ENOUGH) for _ in range(2)]
        beside = platform.begin("digits-beside")
        ends = [platform.wait_for_end(run["run"], within_s=400) for run in (*two, beside)]
        platform.no_pods(within_s=60)
    assert [end["state"] for end in ends] == ["success"] * 3, ends

    # Never more than its slots, never pods of both gangs, and each was whole once.
    assert max(moment.slots for moment in theirs.moments) <= vision.slots
    runs = {run["run"] for run in two}
    assert {run for moment in theirs.moments for run in moment.gangs} == runs
    assert max(len(moment.gangs) for moment in theirs.moments) == 1
    for run in runs:
        assert max(moment.replicas(run, running=True) for moment in theirs.moments) == GANG
    # A gang that began is whole before anything of it ends: none was taken down half-made.
    order = [next(iter(moment.gangs)) for moment in theirs.moments if moment.gangs]
    changes = sum(earlier != later for earlier, later in itertools.pairwise(order))
    assert changes == 1, "one after the other, each in one piece"

    # It was contention: the second was ready while the first held the slots, and spent no try on waiting.
    first, second = sorted((train_of(platform, run) for run in two), key=lambda times: times["start_date"])
    assert second["scheduled_when"] < first["end_date"] <= second["start_date"]
    for run in two:
        assert platform.api("GET", f"/dags/{run['dag_id']}/dagRuns/{run['run_id']}/taskInstances/train").json()["try_number"] == 1

    # The other tenant's gang was not behind the waiting one.
    assert max(moment.slots for moment in others.moments) <= tabular.slots
    between = train_of(platform, beside)
    assert between["end_date"] < second["end_date"]
    assert between["start_date"] - between["scheduled_when"] < first["end_date"] - second["scheduled_when"]
