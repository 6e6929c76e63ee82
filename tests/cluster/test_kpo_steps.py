"""The house's KubernetesPodOperator against a cluster: what a step's end comes to, waiting for room, being killed, being found again."""

from __future__ import annotations

import secrets
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from kubernetes import client as k8s

from tests.cluster.gang_support import GangTenant, wait_for
from tests.cluster.support import Profile
from tests.fixtures.identities import Identities
from trainyard.contract import names
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.operators.step_pod import HousePod

SMALL = {"cpu": "100m", "memory": "128Mi"}


class ShellStep(HousePod):
    """A step that runs a line of shell in a pod composed as all are."""

    def __init__(self, *, tenant: GangTenant, kubeconfig: str, image: str, script: str, **kwargs: Any) -> None:
        super().__init__(task_id=f"step-{secrets.token_hex(3)}", **kwargs)
        self._tenant, self._kubeconfig, self._image, self._script = tenant, kubeconfig, image, script

    @property
    def tenant_name(self) -> str:
        return self._tenant.name

    def _choose_cluster(self) -> None:
        self.config_file = self._kubeconfig

    def compose(self, context: Any) -> k8s.V1Pod:
        parts = PodParts(
            site=Site(self._image, "IfNotPresent"),
            command=["sh", "-c", self._script],
            resources=SMALL,
            scratch="16Mi",
            environment={},
            labels={names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_STEP: "shell", names.LABEL_RUN: self.task_id},
        )
        return as_pod(pod_template(parts), self.task_id, self._tenant.namespace)


class Step:
    """Runs steps as Airflow would, in this process."""

    def __init__(self, tenant: GangTenant, kubeconfig: str, image: str) -> None:
        self._tenant, self._kubeconfig, self._image = tenant, kubeconfig, image
        self.task: ShellStep | None = None

    def make(self, script: str) -> ShellStep:
        self.task = ShellStep(tenant=self._tenant, kubeconfig=self._kubeconfig, image=self._image, script=script)
        return self.task

    @staticmethod
    def context(task: ShellStep, try_number: int = 1) -> Any:
        ti = SimpleNamespace(
            dag_id="train_vision_p", task_id=task.task_id, map_index=-1, try_number=try_number, xcom_push=lambda key, value: None
        )
        return {"ti": ti, "run_id": "manual__1", "dag": SimpleNamespace(), "task_state_store": None}

    def run(self, script: str) -> None:
        task = self.make(script)
        task.execute(self.context(task))

    def pods(self) -> list[k8s.V1Pod]:
        assert self.task is not None
        selector = f"{names.LABEL_RUN}={self.task.task_id}"
        return list(self._tenant.core.list_namespaced_pod(self._tenant.namespace, label_selector=selector).items)

    def running(self) -> bool:
        return any(pod.status.phase == "Running" for pod in self.pods())


@pytest.fixture
def step(tenant: GangTenant, cluster: tuple[str, Profile], identities: Identities) -> Step:
    return Step(tenant, identities.run, cluster[1].image)


def test_a_good_end_leaves_no_pod_and_its_log_is_the_tasks(step: Step, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    with caplog.at_level("INFO"):
        step.run("echo hello from the pod")
    assert "hello from the pod" in caplog.text + capfd.readouterr().out
    wait_for(lambda: step.pods() == [], "the pod is gone")


@pytest.mark.parametrize(
    ("code", "kind"), [(40, AirflowFailException), (41, AirflowFailException), (45, AirflowException), (1, AirflowException)]
)
def test_exit_codes(step: Step, code: int, kind: type[Exception]) -> None:
    with pytest.raises(AirflowException, match=rf"exit code {code}\).*: the last line") as caught:
        step.run(f"echo first; echo the last line; exit {code}")
    assert type(caught.value) is kind
    wait_for(lambda: step.pods() == [], "the pod is gone")


def test_the_skipped_code_skips(step: Step) -> None:
    with pytest.raises(AirflowSkipException):
        step.run("exit 90")


def test_a_memory_kill_is_said_to_be_one(step: Step) -> None:
    with pytest.raises(AirflowFailException, match=r"OOM in step-.*its limit of 128Mi"):
        step.run("python3 -c 'import os,time; x=os.urandom(1024)*1024*400; time.sleep(30)'")


def test_a_full_quota_is_waited_for(step: Step, tenant: GangTenant) -> None:
    """apache/airflow#63944: no retry is spent, nothing is left over."""
    tenant.quota(pods="1")
    blocker = Step(step._tenant, step._kubeconfig, step._image)
    slow = blocker.make("sleep 4")
    first = threading.Thread(target=slow.execute, args=(blocker.context(slow),), daemon=True)
    first.start()
    try:
        wait_for(blocker.running, "the first pod runs")
        step.run("exit 0")
        first.join(60)
        assert not first.is_alive()
    finally:
        tenant.core.delete_namespaced_resource_quota("tenant", tenant.namespace)


def test_a_killed_task_is_not_green_and_its_pod_goes(step: Step) -> None:
    task = step.make("sleep 600")
    caught: list[BaseException] = []

    def execute() -> None:
        try:
            task.execute(step.context(task))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=execute, daemon=True)
    thread.start()
    wait_for(step.running, "the pod runs")
    task.on_kill()
    thread.join(60)
    assert not thread.is_alive()
    assert len(caught) == 1
    assert "was killed" in str(caught[0])
    wait_for(lambda: step.pods() == [], "the pod is gone")


def test_the_next_try_finds_the_pod_of_a_worker_that_died(step: Step) -> None:
    """apache/airflow#35676: two pods of one task at the same time."""
    first = step.make("sleep 3; exit 40")
    context = step.context(first)
    pod = first.compose(context)
    # What a SIGKILLed worker leaves: the pod, with the labels of its try.
    pod.metadata.labels |= first._get_ti_pod_labels(context)
    step._tenant.core.create_namespaced_pod(step._tenant.namespace, pod)
    with pytest.raises(AirflowFailException, match="exit code 40"):
        first.execute(step.context(first, try_number=2))
    wait_for(lambda: step.pods() == [], "the pod is gone")


def test_a_pod_that_admission_refuses_fails_at_once(step: Step, tenant: GangTenant) -> None:
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "64Mi"}}]}}
    tenant.core.create_namespaced_limit_range(tenant.namespace, body)
    try:
        with pytest.raises(AirflowFailException, match=r"refuses the pod: .*maximum memory usage per Container is 64Mi"):
            step.run("true")
    finally:
        tenant.core.delete_namespaced_limit_range("limits", tenant.namespace)
