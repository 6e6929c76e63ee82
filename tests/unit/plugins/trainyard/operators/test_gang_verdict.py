"""Which error a gang's end comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract.run_spec import RunSpec
from trainyard.kube.gang_state import JobView, PodView
from trainyard.operators import gang_verdict
from trainyard.operators.gang_verdict import FailureRecord
from trainyard.operators.generations import Result

SPEC = RunSpec.model_validate(run_spec_document())


def failed(role: str, index: int, code: int, *, oom: bool = False, uid: str | None = None, message: str | None = None) -> PodView:
    return PodView(
        name=f"{role}-{index}", uid=uid or f"{role}{index}{code}", role=role, index=index, phase="Failed", deleting=False, ready=False,
        node="n", started=True, exit_code=code, oom_killed=oom, message=message, waits_for=None, memory_limit="2Gi",
    )  # fmt: skip


def job(role: str, *, failed_reason: str | None = None, complete: bool = False) -> JobView:
    words = f"{failed_reason}: m" if failed_reason else None
    return JobView(f"j-{role}", role, 1, "s", complete, words, failed_reason, False)


def record(*pods: PodView) -> FailureRecord:
    made = FailureRecord()
    made.note(pods)
    return made


def verdict(*pods: PodView, jobs: dict[str, JobView] | None = None, told: dict[str, str] | None = None) -> tuple[str, str, bool]:
    error = gang_verdict.of_cluster(SPEC, 1, jobs or {"c": job("chief")}, record(*pods), told or {})
    return error.reason, str(error).partition(": ")[2], error.final


def test_the_cause_is_named_and_its_consequences_are_not() -> None:
    gone = failed("ps", 0, 43)
    reason, text, final = verdict(gone, failed("worker", 1, 40, message="no"), failed("worker", 0, 143))
    assert (reason, final) == ("UserError", True)
    assert text == "worker-1: exit code 40 (UserError): no"


def test_memory_is_said_before_all_else() -> None:
    error = gang_verdict.of_result(Result(46, "PeerFailed", "worker-1 failed", None, None), record(failed("worker", 1, 137, oom=True)))
    assert (error.reason, error.final) == ("OutOfMemory", True)
    assert "worker-1" in str(error)
    assert "2Gi" in str(error)


def test_memory_kills_are_counted_by_replica_and_each_pod_once() -> None:
    one = failed("worker", 1, 137, oom=True, uid="a")
    seen = record(one, one, failed("worker", 0, 137, oom=True, uid="b"))
    assert gang_verdict.out_of_memory(seen, 2) is None
    seen.note([failed("worker", 1, 137, oom=True, uid="c")])
    error = gang_verdict.out_of_memory(seen, 2)
    assert error is not None
    assert "2 times" in str(error)


@pytest.mark.parametrize(("code", "final"), [(40, True), (46, True), (47, True), (44, False), (45, False)])
def test_a_result_is_final_as_its_code_is(code: int, final: bool) -> None:
    assert gang_verdict.of_result(Result(code, "R", "m", None, None), record()).final is final


def test_a_deadline_is_final() -> None:
    reason, text, final = verdict(jobs={"c": job("chief", failed_reason="DeadlineExceeded")})
    assert (reason, final) == ("Deadline", True)
    assert "600 s" in text


@pytest.mark.parametrize(
    ("jobs", "words"),
    [({}, "the chief's Job is gone"), ({"c": job("chief", failed_reason="BackoffLimitExceeded")}, "the chief ended without a result")],
)
def test_what_nobody_explains_is_lost_and_tried_again(jobs: dict[str, Any], words: str) -> None:
    error = gang_verdict.of_cluster(SPEC, 1, jobs, record(failed("ps", 0, 43)), {})
    assert (error.reason, error.final) == ("Lost", False)
    assert words in str(error)


def test_replicas_given_up_with_their_node_are_lost() -> None:
    reason, text, final = verdict(replace(failed("chief", 0, 0), exit_code=None, message="node n2 does not answer"))
    assert (reason, final) == ("Lost", False)
    assert "node n2 does not answer" in text


def test_what_replicas_wrote_is_told() -> None:
    reason, text, final = verdict(failed("worker", 1, 41), told={"worker-1": "DataError: shard 3 differs"})
    assert (reason, text, final) == ("DataError", "worker-1: DataError: shard 3 differs", True)
