from __future__ import annotations

import pytest

from local.kubelet import writer
from local.kubelet.api import ApiError, Json
from local.kubelet.writer import StatusWriter
from tests.unit.local.kubelet.conftest import FakeApi, pod_document
from tests.unit.local.kubelet.test_workqueue import wait_until

POD = pod_document()
STATUS, OBJECT = ("PATCH", "/api/v1/namespaces/ns/pods/p/status"), ("DELETE", "/api/v1/namespaces/ns/pods/p")


@pytest.fixture
def written(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> StatusWriter:
    monkeypatch.setattr(writer, "BACKOFF_S", (0.01,))
    return StatusWriter(api)  # type: ignore[arg-type]


def sent(api: FakeApi) -> list[tuple[str, Json | None]]:
    return [(method, body) for method, _, body in api.asked]


def test_the_newest_status_is_written_with_the_pods_uid(api: FakeApi, written: StatusWriter) -> None:
    written.status(POD, {"phase": "Pending"})
    written.status(POD, {"phase": "Running"})
    written.start()
    wait_until(lambda: api.asked)
    written.stop()
    assert sent(api) == [("PATCH", {"metadata": {"uid": "u-1"}, "status": {"phase": "Running"}})]


def test_the_object_goes_after_its_last_status_and_only_that_object(api: FakeApi, written: StatusWriter) -> None:
    written.status(POD, {"phase": "Failed"})
    written.delete(POD)
    written.start()
    wait_until(lambda: len(api.asked) == 2)
    written.stop()
    assert [method for method, _ in sent(api)] == ["PATCH", "DELETE"]
    assert api.asked[1] == (*OBJECT, {"gracePeriodSeconds": 0, "preconditions": {"uid": "u-1"}})


def test_a_server_that_is_away_gets_the_newest_later(api: FakeApi, written: StatusWriter) -> None:
    api.answers[STATUS] = ApiError(0, "refused")
    written.start()
    written.status(POD, {"phase": "Running"})
    wait_until(lambda: len(api.asked) >= 2)
    written.status(POD, {"phase": "Succeeded"})
    written.delete(POD)
    assert not any(method == "DELETE" for method, _ in sent(api)), "not before its status is known"
    del api.answers[STATUS]
    wait_until(lambda: any(method == "DELETE" for method, _ in sent(api)))
    written.stop()
    assert [body["status"]["phase"] for method, body in sent(api) if body and method == "PATCH"][-1] == "Succeeded"


@pytest.mark.parametrize("code", [404, 409])
def test_a_pod_that_is_gone_is_told_no_more(api: FakeApi, written: StatusWriter, code: int) -> None:
    api.answers[STATUS] = ApiError(code, "gone")
    written.start()
    written.status(POD, {"phase": "Running"})
    wait_until(lambda: not written._wanted)
    written.stop()
    assert len(api.asked) == 1
