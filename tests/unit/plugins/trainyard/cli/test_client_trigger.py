"""A run is begun once, whatever the server answers at first."""

from __future__ import annotations

import json

import httpx
import pytest

from trainyard.cli import client as clients
from trainyard.cli.client import BadRequestError, Client
from trainyard.cli.session import Session
from trainyard.errors import UnavailableError

DAG = "train_vision_digits-mlp"
PATH = f"/api/v2/dags/{DAG}/dagRuns"


class Airflow:
    """Refuses the first writes as SQLite makes it do; ``begun_all_the_same``: the run is there in spite of that."""

    def __init__(self, refusals: int, status: int = 500, begun_all_the_same: bool = False) -> None:
        self.refusals, self.status, self.begun_all_the_same = refusals, status, begun_all_the_same
        self.runs: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            asked = request.url.path.rpartition("/")[2]
            return httpx.Response(200 if asked in self.runs else 404, json={"dag_run_id": asked, "detail": f"no run {asked}"})
        run_id = json.loads(request.content)["dag_run_id"]
        if self.refusals:
            self.refusals -= 1
            if self.begun_all_the_same:
                self.runs.append(run_id)
            return httpx.Response(self.status, json={"detail": "database is locked"})
        self.runs.append(run_id)
        return httpx.Response(200, json={"dag_run_id": run_id})


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TRIGGER_AGAIN_S", (0.0, 0.0))


def trigger(airflow: Airflow) -> str:
    with Client(Session(url="http://localhost:1", token="t"), transport=httpx.MockTransport(airflow)) as client:
        return str(client.trigger(DAG, "1.0.0", {})["dag_run_id"])


@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_a_run_that_the_server_could_not_begin_is_asked_for_again(refusals: int) -> None:
    airflow = Airflow(refusals)
    assert [trigger(airflow)] == airflow.runs


def test_a_run_that_began_in_spite_of_the_answer_is_not_begun_twice() -> None:
    airflow = Airflow(1, begun_all_the_same=True)
    assert [trigger(airflow)] == airflow.runs


def test_in_the_end_the_servers_words_are_told() -> None:
    with pytest.raises(UnavailableError, match="database is locked"):
        trigger(Airflow(3))


def test_what_is_wrong_is_not_asked_again() -> None:
    airflow = Airflow(1, status=400)
    with pytest.raises(BadRequestError):
        trigger(airflow)
    assert airflow.refusals == 0
    assert airflow.runs == []
