"""The reaper as a task of Airflow: asks Airflow about the runs, and has a pod remove what should not be there.

The question goes the way every task speaks to Airflow, the Task Execution API with the task's own token: no person's password is needed,
and no page can be missing, since each run is asked for by its ids.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import ConfigError, UnavailableError
from trainyard.kube.client import client
from trainyard.operators.step_pod import HousePod
from trainyard.operators.upkeep_pod import upkeep_pod
from trainyard.settings import Settings, load_tenant
from trainyard.settings.loading import find_config
from trainyard.upkeep.reaping.judging import Ask, RunState, judge
from trainyard.upkeep.reaping.order import UPLOADS_AFTER_S, VARIABLE, Order, strays_of
from trainyard.upkeep.reaping.seen import Root, roots

if TYPE_CHECKING:
    from airflow.sdk import Context

DEADLINE_S: Final = 540
"""Shorter than the task's own time."""
DRY_RUN: Final = "dry_run"
"""The form's field."""
UPLOADS_IN_MINUTES: Final = 10
"""Uploads are looked for by rounds that begin in so many minutes after the hour: about once an hour, at the schedule that the DAG has."""


def ask_airflow(ti: Any) -> Ask:
    """The question, asked as this task instance.

    It raises whatever Airflow's SDK raises (AirflowRuntimeError for any answer that is an error), and UnavailableError for answers that
    contradict each other.
    """

    def ask(dag_id: str, run_id: str) -> RunState | None:
        # A count and not a 404: "no such run" is then an answer of its own, which no error on the way can be taken for.
        count = ti.get_dr_count(dag_id=dag_id, run_ids=[run_id])
        if count == 0:
            return None
        found = _details(dag_id, run_id)
        if count != 1 or (found.dag_id, found.run_id) != (dag_id, run_id):
            raise UnavailableError(f"Airflow's answers on run {run_id} of {dag_id} contradict each other ({count} runs)")
        return RunState(str(getattr(found.state, "value", found.state)), found.end_date)

    return ask


def _details(dag_id: str, run_id: str) -> Any:
    """The run as the Task Execution API has it: the SDK offers tasks its state, but not when it ended."""
    from airflow.sdk.execution_time.comms import GetDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    return SUPERVISOR_COMMS.send(GetDagRun(dag_id=dag_id, run_id=run_id))


def tenants() -> tuple[list[str], Settings]:
    """All tenants that have a file, a broken one too, and the deployment's settings.

    Raises:
        ConfigError: no tenant's file can be used.
    """
    folder = find_config(None, os.environ)
    found = sorted(path.stem for path in Path(folder, "tenants").glob("*.yaml"))
    problem = ConfigError(f"{folder}/tenants: there is no tenant")
    for tenant in found:
        try:
            return found, load_tenant(tenant).settings
        except ConfigError as error:
            problem = error
    raise problem


class ReapPod(HousePod):
    """``reap``: one round. Fails, and deletes nothing, where Airflow or the cluster does not answer in full."""

    template_fields: Sequence[str] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._order: Order | None = None
        self._settings: Settings | None = None

    def execute(self, context: Context) -> Any:
        """Judge, and carry out what comes of it; without strays there is no pod."""
        self._order, self._settings = self.judge(context)
        if self._order.empty:
            return None
        return super().execute(context)

    def judge(self, context: Context) -> tuple[Order, Settings]:
        """The order of this round; what stays is said in the log."""
        names_, settings = tenants()
        instance, s3 = settings.cluster.s3.bucket_prefix, settings.cluster.s3
        with client(settings.cluster.kubeconfig) as api:
            found: list[Root] = [root for tenant in names_ for root in self._roots(api, tenant)]
        ti: Any = context["ti"]
        now = datetime.datetime.now(datetime.UTC)
        judgement = judge(found, instance, ask_airflow(ti), now)
        dry_run = bool((context.get("params") or {}).get(DRY_RUN, False))
        order = Order(
            instance=instance,
            dry_run=dry_run,
            endpoint=s3.endpoint,
            region=s3.region,
            buckets={tenant: names.data_bucket(s3.bucket_prefix, tenant) for tenant in names_},
            strays=strays_of(judgement),
            uploads_after_s=UPLOADS_AFTER_S if dry_run or now.minute < UPLOADS_IN_MINUTES else None,
        )
        self.log.info(
            "%d runs live, %d strays (%d of them in this round), %d within the grace time, %d objects that are not ours",
            judgement.live, len(judgement.strays), len(order.strays), judgement.young, judgement.foreign,
        )  # fmt: skip
        for line in judgement.unnamed:
            self.log.warning("%s is ours and says of no run: left alone", line)
        for stray in order.strays:
            self.log.info("stray: run %s of tenant %s: %s", stray.run, stray.tenant, stray.said)
        return order, settings

    def _roots(self, api: k8s.ApiClient, tenant: str) -> list[Root]:
        try:
            return roots(api, tenant)
        except k8s.ApiException as error:
            if error.status != 403:
                raise
            # A file that is there before sync (or reconcile) has made its namespace.
            self.log.warning("namespace %s cannot be looked at yet: %s", names.namespace(tenant), error.reason)
            return []

    def compose(self, context: Context) -> k8s.V1Pod:
        """The upkeep image's ``reap`` command with this round's order."""
        order, settings = self._order, self._settings
        assert order is not None, "execute() judges first"
        assert settings is not None
        return upkeep_pod(
            settings.cluster,
            "reap",
            arguments=["reap"],
            variables={VARIABLE: order.model_dump_json()},
            labels={
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_INSTANCE: order.instance,
                names.LABEL_STEP: names.STEP_REAP,
            },
            deadline_s=DEADLINE_S,
        )

    def _profile_kubeconfig(self) -> str | None:
        assert self._settings is not None
        return self._settings.cluster.kubeconfig
