"""Run by test_turns.py in a process of its own: Airflow's own scheduler on a database of its own, with tasks that only pretend to run.

A tenant of 6 slots: one run whose gang asks for all 6, and runs of three other pipelines, four of each at a time, one following the other
without a pause. A round is one loop of the scheduler; a task that was started ends after some rounds. Prints one JSON document.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from typing import Any

from airflow.api_fastapi.execution_api.routes.task_instances import get_task_instance_count
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import delete, select

from trainyard.pipelines import turns
from trainyard.settings import load_tenant

UTC = datetime.UTC
BIG, SMALL = "train_vision_big", ("train_vision_one", "train_vision_two", "train_vision_three")
AT_ONCE = 4
SLOTS = 6
ROUNDS = {"train": 5, "prepare": 2, "shard": 2, "evaluate": 2}
"""How long tasks take; the others one round. Each run's own number is added: tasks of different runs do not end together."""


class Simulation:
    """Rounds of the scheduler; ``rule``: whether ``check`` asks whose turn it is."""

    def __init__(self, *, rule: bool) -> None:
        self.rule = rule
        self.runner = SchedulerJobRunner(job=Job())
        self.settings = load_tenant("vision").settings
        self.made = 0
        self.ends: dict[Any, int] = {}
        self.most_slots = 0
        self.held = 0
        with create_session() as session:
            for model in (TaskInstance, DagRun):
                session.execute(delete(model))
            Pool.create_or_update_pool("tenant-vision", SLOTS, "", False, session=session)
            Pool.create_or_update_pool("platform-steps", 64, "", False, session=session)

    def begin_run(self, dag_id: str, session: Any) -> None:
        self.made += 1
        dag = SerializedDagModel.get(dag_id, session=session).dag
        dag.create_dagrun(
            run_id=f"manual__{self.made}",
            run_after=datetime.datetime.now(UTC),
            conf={},
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.REST_API,
            state=DagRunState.RUNNING,
            start_date=datetime.datetime.now(UTC),
            session=session,
        )

    def gangs_waiting(self, session: Any) -> str | None:
        """As ``check`` asks in its worker: through the execution API's own function."""

        def count(dag_id: str) -> int:
            return get_task_instance_count(
                dag_id, session, None, map_index=None, task_ids=["train"], task_group_id=None,
                logical_dates=None, run_ids=None, states=["scheduled"],
            )  # fmt: skip

        return turns.gangs_that_wait(self.settings, "vision", count, sleep=lambda seconds: None)

    def round(self, number: int) -> bool:
        """One loop; whether the big gang was started in it."""
        with create_session() as session:
            active = Counter(session.scalars(select(DagRun.dag_id).where(DagRun.state == DagRunState.RUNNING)).all())
            for dag_id in SMALL:
                if active[dag_id] < AT_ONCE:
                    self.begin_run(dag_id, session)
        with create_session() as session:
            for run in session.scalars(select(DagRun).where(DagRun.state == DagRunState.RUNNING)).all():
                self.runner._schedule_dag_run(run, session)
            session.flush()
            started = self.runner._executable_task_instances_to_queued(64, session=session)
            held = self.gangs_waiting(session) if self.rule else None
            # The scheduler gives them away detached.
            started = [session.get(TaskInstance, ti.id) for ti in started]
            for ti in started:
                if ti.task_id == "check" and held is not None:
                    self.held += 1
                    ti.state = None  # up for reschedule: it comes again
                    continue
                ti.state = TaskInstanceState.RUNNING
                ti.start_date = datetime.datetime.now(UTC)
                self.ends[ti.id] = number + ROUNDS.get(ti.task_id, 1) + int(ti.run_id.removeprefix("manual__")) % 3
            session.flush()
            running = session.scalars(select(TaskInstance).where(TaskInstance.state == TaskInstanceState.RUNNING)).all()
            self.most_slots = max(self.most_slots, sum(ti.pool_slots for ti in running if ti.pool == "tenant-vision"))
            for ti in running:
                if number + 1 >= self.ends[ti.id]:
                    ti.state = TaskInstanceState.SUCCESS
                    ti.end_date = datetime.datetime.now(UTC)
            return any(ti.dag_id == BIG and ti.task_id == "train" and ti.pool_slots == SLOTS for ti in started)

    def run(self, warm: int, most: int) -> dict[str, Any]:
        """The stream alone for ``warm`` rounds, then the big run beside it: how many rounds after it began its gang started."""
        for number in range(warm):
            self.round(number)
        with create_session() as session:
            self.begin_run(BIG, session)
        found = None
        for number in range(warm, warm + most):
            if self.round(number):
                found = number - warm
                break
        after = self.made
        for number in range(warm + most, warm + most + (15 if found else 0)):
            self.round(number)
        return {
            "started_after": found,
            "most_slots": self.most_slots,
            "held": self.held,
            "runs": self.made,
            "runs_after": self.made - after,
        }


def main() -> None:
    folder = sys.argv[1]
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(folder, bundle_name="vision")
    assert not bag.import_errors, bag.import_errors
    sync_bag_to_db(bag, "vision", None)
    document = {name: Simulation(rule=rule).run(warm=16, most=50) for name, rule in (("as_airflow_is", False), ("by_turns", True))}
    print("RESULT " + json.dumps(document))


main()
