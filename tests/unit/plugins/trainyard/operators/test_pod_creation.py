"""Waiting for room is no failure: refusals by the quota are asked again, all others are final."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from kubernetes import client as k8s

from trainyard.errors import RefusedError
from trainyard.operators.pod_creation import PatientPodManager

POD = k8s.V1Pod(metadata=k8s.V1ObjectMeta(name="run-plan-abcdefgh", namespace="tenant-vision"))
EXCEEDED = (403, {"message": 'pods "x" is forbidden: exceeded quota: tenant, requested: pods=1, used: pods=4, limited: pods=4'})
CONFLICT = (409, {"reason": "Conflict", "details": {"kind": "resourcequotas"}, "message": 'on resourcequotas "tenant": modified'})
EXISTS = (409, {"reason": "AlreadyExists", "details": {"kind": "pods"}, "message": "already exists"})
INSECURE = (403, {"message": 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'})


class Api:
    """An API server that answers creations as told, then accepts."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.created = 0
        self.read = 0
        self.api_client = k8s.ApiClient()

    def create_namespaced_pod(self, namespace: str, body: Any, **_: Any) -> k8s.V1Pod:
        if self.answers:
            status, document = self.answers.pop(0)
            error = k8s.ApiException(status=status)
            error.body = json.dumps(document)
            raise error
        self.created += 1
        return POD

    def read_namespaced_pod(self, name: str, namespace: str, **_: Any) -> k8s.V1Pod:
        assert (name, namespace) == (POD.metadata.name, POD.metadata.namespace)
        self.read += 1
        return POD


def manager(api: Api, *, room_s: float = 60, stop: Any = lambda: None) -> PatientPodManager:
    return PatientPodManager(api, stop, room_s=room_s, sleep=lambda _: None)  # type: ignore[arg-type]


def test_an_exceeded_quota_is_waited_for() -> None:
    """apache/airflow#63944: it failed the task at once and spent a retry."""
    api = Api(EXCEEDED, EXCEEDED, EXCEEDED)
    assert manager(api).create_pod(POD) is POD
    assert api.created == 1


def test_a_conflict_on_the_quota_is_asked_again() -> None:
    """apache/airflow#15097: tasks failed although the quota was free."""
    api = Api(CONFLICT, CONFLICT)
    assert manager(api).create_pod(POD) is POD
    assert api.created == 1


def test_a_pod_that_exists_is_adopted_and_not_made_twice() -> None:
    api = Api(EXISTS)
    assert manager(api).create_pod(POD) is POD
    assert (api.created, api.read) == (0, 1)


def test_a_refusal_for_good_is_final() -> None:
    api = Api(INSECURE)
    with pytest.raises(RefusedError, match=r"namespace tenant-vision refuses the pod: .*PodSecurity"):
        manager(api).create_pod(POD)


def test_the_wait_is_bounded() -> None:
    with pytest.raises(AirflowException, match=r"no room for the pod in 0 s: .*exceeded quota: tenant"):
        manager(Api(*[EXCEEDED] * 10_000), room_s=0).create_pod(POD)


def test_a_killed_task_does_not_go_on_waiting() -> None:
    def stop() -> None:
        raise AirflowException("killed")

    with pytest.raises(AirflowException, match="killed"):
        manager(Api(EXCEEDED), stop=stop).create_pod(POD)
