"""The house's KubernetesPodOperator: its defaults, and what an end of its pod means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from kubernetes import client as k8s

from trainyard.errors import NotFoundError, RefusedError
from trainyard.kube.pod import PodParts, Site, as_pod, pod_template
from trainyard.operators import step_pod
from trainyard.operators.step_pod import StepPod
from trainyard.settings.site_pods import SitePods

LABELS = {"trainyard.dev/run": "r", "app.kubernetes.io/managed-by": "trainyard"}
SITE = Site("i:1", "Never", pods=SitePods(labels={"example.com/team": "ml"}))
PARTS = PodParts(site=SITE, command=["c"], resources={"memory": "2Gi"}, scratch="1Gi", environment={}, labels=LABELS)


def task(**changes: Any) -> StepPod:
    return StepPod(**({"task_id": "evaluate", "tenant": "vision", "pipeline": "p", "step": "evaluate"} | changes))


def test_the_promised_defaults() -> None:
    made = task()
    assert (made.deferrable, made.durable, made.log_pod_spec_on_failure) == (False, True, False)
    assert made.startup_check_interval_seconds == 1
    assert made.schedule_timeout_seconds >= 3600
    assert (made.kubernetes_conn_id, made.do_xcom_push, made.base_container_name) == (None, False, "main")
    assert str(made.on_finish_action.value) == "delete_pod"
    assert list(made.skip_on_exit_code) == [90]  # type: ignore[call-overload]


class Ended:
    """Stands for what the provider's operator finds when the pod has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, made: StepPod) -> None:
        self._monkeypatch, self._task = monkeypatch, made
        monkeypatch.setattr(made, "compose", lambda context: as_pod(pod_template(PARTS), "run-evaluate", "tenant-vision"))
        monkeypatch.setattr(made, "_choose_cluster", lambda: None)

    def by(self, error: Exception | None, *, code: int | None = None, reason: str = "Error", message: str | None = None) -> None:
        def execute(operator: Any, context: Any) -> None:
            if code is not None:
                terminated = k8s.V1ContainerStateTerminated(exit_code=code, reason=reason, message=message)
                status = SimpleNamespace(name="main", state=SimpleNamespace(terminated=terminated))
                operator.remote_pod = SimpleNamespace(status=SimpleNamespace(container_statuses=[status]))
            if error is not None:
                raise error

        self._monkeypatch.setattr(KubernetesPodOperator, "execute", execute)
        self._task.execute({})  # type: ignore[arg-type,typeddict-item]


@pytest.fixture
def made() -> StepPod:
    return task()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, made: StepPod) -> Ended:
    return Ended(monkeypatch, made)


FAILURE = AirflowException("Pod x returned a failure.")


@pytest.mark.parametrize(("code", "final"), [(40, True), (41, True), (47, True), (45, False), (1, False), (137, False), (143, False)])
def test_only_what_a_retry_would_repeat_is_final(ended: Ended, code: int, final: bool) -> None:
    with pytest.raises(AirflowException) as caught:
        ended.by(FAILURE, code=code, message="line\nlast line\n")
    assert isinstance(caught.value, AirflowFailException) is final
    assert f"exit code {code}" in str(caught.value)
    assert str(caught.value).endswith("last line")


def test_a_memory_kill_names_the_limit_and_is_final(ended: Ended) -> None:
    with pytest.raises(AirflowFailException, match="OOM in evaluate: it used more than its limit of 2Gi"):
        ended.by(FAILURE, code=137, reason="OOMKilled")


def test_a_pod_that_never_ended_keeps_the_providers_words(ended: Ended) -> None:
    with pytest.raises(AirflowException, match="returned a failure"):
        ended.by(FAILURE)


def test_a_refusal_and_a_missing_spec_are_final(ended: Ended, made: StepPod, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="no such namespace"):
        ended.by(RefusedError("no such namespace"))

    def missing(context: Any) -> Any:
        raise NotFoundError("no spec")

    monkeypatch.setattr(made, "compose", missing)
    with pytest.raises(AirflowFailException, match="no spec"):
        ended.by(None)


def test_a_pod_that_was_removed_is_said_to_be_in_one_line_and_tried_again(ended: Ended) -> None:
    with pytest.raises(AirflowException, match=r"the pod was removed from outside: x$") as caught:
        ended.by(k8s.ApiException(status=404, reason="x"))
    assert not isinstance(caught.value, AirflowFailException)


def test_a_skip_stays_a_skip(ended: Ended) -> None:
    with pytest.raises(AirflowSkipException):
        ended.by(AirflowSkipException("90"), code=90)


@pytest.mark.parametrize("error", [None, AirflowSkipException("s"), FAILURE, k8s.ApiException(status=404)])
def test_a_killed_task_never_ends_well(ended: Ended, made: StepPod, error: Exception | None) -> None:
    made._killed = True
    with pytest.raises(AirflowException, match="was killed") as caught:
        ended.by(error)
    assert not isinstance(caught.value, AirflowSkipException)


def test_the_pod_is_found_again_by_our_labels_and_not_by_what_a_site_adds(ended: Ended, made: StepPod) -> None:
    ended.by(None)
    assert made.labels == {"trainyard.dev/run": "r", "app.kubernetes.io/managed-by": "trainyard"}
    assert (made.namespace, made.name) == ("tenant-vision", "run-evaluate")


def test_there_is_one_subclass_of_the_providers_operator() -> None:
    ours = [kind for kind in KubernetesPodOperator.__subclasses__() if kind.__module__.startswith("trainyard.")]
    assert ours == [step_pod.HousePod]
