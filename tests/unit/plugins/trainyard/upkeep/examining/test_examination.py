"""The order of the list: what stands on what, what a check falls over, and that everything made goes, also after an interruption."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kubernetes import client as k8s
from urllib3.exceptions import ProtocolError

from tests.unit.plugins.trainyard.upkeep.examining.conftest import CHECKOUT
from trainyard.errors import UnavailableError
from trainyard.upkeep.examining.examination import CHECKS, Check, examine
from trainyard.upkeep.examining.finding import Finding, absent, doubtful, well, wrong
from trainyard.upkeep.examining.patient import Patient


def check(name: str, *findings: Finding, needs: tuple[str, ...] = (), error: BaseException | None = None) -> Check:
    def run(_: Patient) -> Iterator[Finding]:
        yield from findings
        if error is not None:
            raise error

    return Check(name, run, needs)


def told(patient: Patient, *checks: Check) -> dict[str, str]:
    return {finding.check: finding.state for finding in examine(patient, checks)}


def test_every_check_stands_only_on_earlier_ones() -> None:
    before: set[str] = set()
    for one in CHECKS:
        assert set(one.needs) <= before, one.name
        assert one.name not in before
        before.add(one.name)


def test_the_guide_lists_them_all_in_their_order() -> None:
    guide = (CHECKOUT / "docs" / "guides" / "doctor.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`[a-z0-9 ]+`(?:, )?)+) \|", guide.split("## The list")[1].split("## Which")[0], flags=re.MULTILINE)
    assert re.findall(r"`([^`]+)`", ", ".join(rows)) == [check.name for check in CHECKS]


def test_what_stands_on_a_failed_one_is_not_tried_and_nor_is_what_stands_on_that(patient: Patient) -> None:
    checks = (
        check("a", wrong("saw", "do")),
        check("b", well("never"), needs=("a",)),
        check("c", well("never"), needs=("b",)),
        check("d", well("all the same")),
    )
    assert told(patient, *checks) == {"a": "failed", "b": "not_tried", "c": "not_tried", "d": "ok"}
    assert [finding.saw for finding in examine(patient, checks)] == ["saw", "stands on `a`", "stands on `a`", "all the same"]


def test_a_doubt_and_what_does_not_apply_stop_nothing(patient: Patient) -> None:
    checks = (check("a", doubtful("saw", "do")), check("b", absent("why")), check("c", well("saw"), needs=("a", "b")))
    assert told(patient, *checks) == {"a": "warning", "b": "not_applicable", "c": "ok"}


def test_one_failure_of_several_findings_is_enough(patient: Patient) -> None:
    checks = (check("a", wrong("saw", "do"), well("something else")), check("b", well("never"), needs=("a",)))
    assert told(patient, *checks)["b"] == "not_tried"


def _refusal() -> k8s.ApiException:
    error = k8s.ApiException(status=403, reason="Forbidden")
    error.body = '{"message": "pods is forbidden: nobody may"}'
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnavailableError("the API server has gone"), "the API server has gone"),
        (_refusal(), "the API server refuses: pods is forbidden: nobody may"),
        (ProtocolError("Connection aborted."), "the API server does not answer: Connection aborted."),
        (k8s.ApiException(status=422, reason="Unprocessable"), "the API server answered 422 Unprocessable"),
    ],
)
def test_what_a_check_falls_over_is_a_finding(patient: Patient, error: Exception, words: str) -> None:
    found = list(examine(patient, (check("a", error=error), check("b", well("saw")))))
    assert [(finding.check, finding.state) for finding in found] == [("a", "failed"), ("b", "ok")]
    assert found[0].saw == words
    assert found[0].todo


def test_a_mistake_of_our_own_is_none(patient: Patient) -> None:
    with pytest.raises(ZeroDivisionError):
        list(examine(patient, (check("a", error=ZeroDivisionError()),)))


def test_everything_made_goes_the_last_first_whatever_happens(patient: Patient) -> None:
    gone: list[str] = []
    said: list[str] = []

    def stays() -> None:
        raise UnavailableError("namespace x is still there")

    patient.remark = said.append
    patient.undo += [lambda: gone.append("first"), stays, lambda: gone.append("last")]
    with pytest.raises(KeyboardInterrupt), patient:
        list(examine(patient, (check("a", error=KeyboardInterrupt()),)))
    assert gone == ["last", "first"]
    assert said == ["left behind: namespace x is still there"]
    assert patient.close() == []
