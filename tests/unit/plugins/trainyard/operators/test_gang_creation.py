"""Creating one object of a gang: a quota that was busy is asked again, an answer that was lost is no second object."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kubernetes import client as k8s

from trainyard.kube.patience import Patience
from trainyard.operators import gang_creation
from trainyard.operators.gang_creation import create_with_patience


def refusal(status: int, **body: object) -> k8s.ApiException:
    error = k8s.ApiException(status=status, reason="")
    error.body = json.dumps(body)
    return error


BUSY = {"reason": "Conflict", "details": {"kind": "resourcequotas", "name": "tenant"}, "message": "the object has been modified"}
EXISTS = {"reason": "AlreadyExists", "details": {"kind": "jobs"}, "message": 'jobs.batch "r-g1-ps" already exists'}
FULL = {"message": 'services "r" is forbidden: exceeded quota: tenant'}


class Server:
    """Gives one answer after another."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def _next(self, verb: str) -> object:
        self.asked.append(verb)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def create(self) -> Callable[..., object]:
        return lambda namespace, body, **how: self._next(f"create {body} in {namespace}")

    @property
    def read(self) -> Callable[..., object]:
        return lambda name, namespace, **how: self._next(f"read {name} in {namespace}")


def make(server: Server) -> object:
    return create_with_patience(server.create, server.read, "r-g1-ps", "tenant-vision", "body")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_creation, "Patience", lambda seconds: Patience(seconds=0.5, first=0.01, most=0.01))


def test_a_conflict_on_the_quota_is_asked_again() -> None:
    server = Server(refusal(409, **BUSY), refusal(409, **BUSY), "made")
    assert make(server) == "made"
    assert server.asked == ["create body in tenant-vision"] * 3


def test_what_exists_already_is_adopted() -> None:
    """The name holds run and generation: only a request of our own whose answer was lost can have made it."""
    server = Server(refusal(409, **EXISTS), "as it is")
    assert make(server) == "as it is"
    assert server.asked == ["create body in tenant-vision", "read r-g1-ps in tenant-vision"]


def test_a_quota_that_stays_busy_is_no_wait_for_ever() -> None:
    server = Server(*[refusal(409, **BUSY)] * 1000)
    with pytest.raises(k8s.ApiException) as caught:
        make(server)
    assert caught.value.status == 409


def test_any_other_refusal_is_one() -> None:
    with pytest.raises(k8s.ApiException) as caught:
        make(Server(refusal(403, **FULL)))
    assert caught.value.status == 403
