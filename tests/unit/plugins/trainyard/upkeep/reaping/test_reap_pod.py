"""The task's half: how Airflow is asked, what the pod is told, and that nothing is ordered where Airflow does not answer."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from tests.unit.plugins.trainyard.upkeep.reaping.test_judging import LONG_AGO, root
from trainyard.errors import ConfigError, UnavailableError
from trainyard.operators.step_pod import HousePod
from trainyard.settings import load
from trainyard.upkeep.reaping import reap_pod
from trainyard.upkeep.reaping.judging import RunState
from trainyard.upkeep.reaping.order import MOST_STRAYS, Order
from trainyard.upkeep.reaping.reap_pod import ReapPod, ask_airflow, tenants

CHECKOUT = Path(__file__).parents[6]
ENDED = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def details(state: str = "failed", **fields: Any) -> Any:
    return SimpleNamespace(**({"dag_id": "d", "run_id": "r", "state": state, "end_date": ENDED} | fields))


def asked(monkeypatch: pytest.MonkeyPatch, count: int, found: Any = None) -> Any:
    monkeypatch.setattr(reap_pod, "_details", lambda dag_id, run_id: found)
    return ask_airflow(SimpleNamespace(get_dr_count=lambda dag_id, run_ids: count))


def test_airflows_word_on_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, 0)("d", "r") is None
    assert asked(monkeypatch, 1, details())("d", "r") == RunState("failed", ENDED)


@pytest.mark.parametrize(("count", "found"), [(2, details()), (1, details(run_id="another")), (1, details(dag_id="another"))])
def test_contradictions_are_no_answer(monkeypatch: pytest.MonkeyPatch, count: int, found: Any) -> None:
    with pytest.raises(UnavailableError, match="contradict"):
        asked(monkeypatch, count, found)("d", "r")


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """The orders that pods were started with, for a cluster that holds :func:`root`'s Job."""
    found: list[Order] = []
    monkeypatch.setenv("TRAINYARD_CONFIG", str(CHECKOUT / "config"))
    monkeypatch.setattr(reap_pod, "client", lambda *_: Client())
    monkeypatch.setattr(reap_pod, "roots", lambda api, tenant: [root(instance="trainyard")] if tenant == "vision" else [])
    monkeypatch.setattr(HousePod, "execute", lambda self, context: found.append(self._order))
    return found


class Client:
    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...


def context(answer: Any, **params: Any) -> Any:
    """A task whose questions Airflow answers with ``answer()``."""
    return {"ti": SimpleNamespace(get_dr_count=lambda dag_id, run_ids: answer()), "params": params}


def at(monkeypatch: pytest.MonkeyPatch, minute: int) -> None:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return LONG_AGO.replace(minute=minute) + datetime.timedelta(days=1)

    monkeypatch.setattr(reap_pod.datetime, "datetime", Clock)


def test_a_stray_becomes_an_order(ordered: list[Order], monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 30)
    ReapPod(task_id="reap").execute(context(lambda: 0))
    (order,) = ordered
    assert (order.instance, order.dry_run, order.uploads_after_s) == ("trainyard", False, None)
    assert [(stray.run, stray.reason) for stray in order.strays] == [("r-1", "absent")]
    assert order.buckets["vision"] == "trainyard-vision"
    assert set(order.buckets) == set(load(CHECKOUT / "config", environ={}).tenants)


def test_without_strays_there_is_no_pod_but_for_uploads_once_an_hour(ordered: list[Order], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reap_pod, "roots", lambda api, tenant: [])
    at(monkeypatch, 30)
    ReapPod(task_id="reap").execute(context(lambda: 0))
    assert ordered == []
    at(monkeypatch, 3)
    ReapPod(task_id="reap").execute(context(lambda: 0))
    assert [order.uploads_after_s for order in ordered] == [86400]


def test_the_forms_dry_run_reaches_the_pod(ordered: list[Order]) -> None:
    ReapPod(task_id="reap").execute(context(lambda: 0, dry_run=True))
    assert ordered[0].dry_run
    assert ordered[0].uploads_after_s is not None


def refuses() -> int:
    error = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})
    raise AirflowRuntimeError(error)


def is_away() -> int:
    raise ConnectionError("connection refused")


@pytest.mark.parametrize("answer", [refuses, is_away, lambda: 2])
def test_an_airflow_that_does_not_answer_in_full_starts_no_pod(ordered: list[Order], answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reap_pod, "_details", lambda dag_id, run_id: details(dag_id=dag_id, run_id=run_id))
    with pytest.raises((AirflowRuntimeError, ConnectionError, UnavailableError)):
        ReapPod(task_id="reap").execute(context(answer))
    assert ordered == []


def test_the_pod_is_the_platforms_own(ordered: list[Order]) -> None:
    task = ReapPod(task_id="reap")
    task.execute(context(lambda: 0))
    pod = task.compose({})  # type: ignore[arg-type]
    assert (pod.metadata.namespace, pod.spec.service_account_name) == ("trainyard-platform", "trainyard-upkeep")
    assert "trainyard.dev/run" not in pod.metadata.labels
    environment = {variable.name: variable.value for variable in pod.spec.containers[0].env}
    assert Order.model_validate_json(environment["TRAINYARD_REAP_ORDER"]) == ordered[0]


def test_an_order_fits_one_variable(ordered: list[Order], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes 128 KiB: as many runs, with names and ids as long as they may be, and three Jobs each."""
    name = "p" * 20 + "-0123456789"

    def jobs(run: int) -> list[Any]:
        ids = {"run": f"{name[:-4]}{run:04}", "run_id": f"manual__{run}" + "x" * 240, "dag_id": "train_" + "t" * 30 + "_" + "p" * 40}
        return [root(uid=f"{run:030d}-{n:05d}", name=f"{name}-g1-worker", instance="trainyard", **ids) for n in range(3)]

    found = [job for run in range(MOST_STRAYS + 50) for job in jobs(run)]
    monkeypatch.setattr(reap_pod, "roots", lambda api, tenant: found if tenant == "vision" else [])
    ReapPod(task_id="reap").execute(context(lambda: 0))
    assert len(ordered[0].strays) == MOST_STRAYS
    assert len(ordered[0].model_dump_json()) < 128 * 1024


def test_one_broken_tenant_file_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(CHECKOUT / "config", tmp_path / "config")
    monkeypatch.setenv("TRAINYARD_CONFIG", str(tmp_path / "config"))
    (tmp_path / "config/tenants/aaa.yaml").write_text("slots: -1\n")
    found, settings = tenants()
    assert {"aaa", "vision", "tabular"} <= set(found)
    assert settings.cluster.s3.bucket_prefix == "trainyard"
    for file in (tmp_path / "config/tenants").glob("*.yaml"):
        file.write_text("slots: -1\n")
    with pytest.raises(ConfigError):
        tenants()
