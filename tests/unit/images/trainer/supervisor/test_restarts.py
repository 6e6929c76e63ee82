from __future__ import annotations

import time

import pytest

from trainer.supervisor.restarts import QUIET_S, Restarts


def test_the_waits_double_and_are_bounded() -> None:
    restarts = Restarts("worker")
    assert [restarts.wait_before_next(137, time.monotonic()) for _ in range(5)] == [1, 2, 4, None, None]


def test_a_child_that_lived_long_begins_a_new_row() -> None:
    restarts = Restarts("ps")
    for _ in range(3):
        restarts.wait_before_next(137, time.monotonic())
    assert restarts.wait_before_next(137, time.monotonic()) is None
    assert restarts.wait_before_next(137, time.monotonic() - QUIET_S - 1) == 1


@pytest.mark.parametrize("code", [0, 1, 2, 40, 41, 42, 44, 46, 47, 90, 127])
@pytest.mark.parametrize("role", ["chief", "ps", "worker"])
def test_good_ends_bugs_and_final_codes_are_never_restarted(role: str, code: int) -> None:
    assert Restarts(role).wait_before_next(code, time.monotonic()) is None


@pytest.mark.parametrize("code", [45, 134, 137, 139, 143])
@pytest.mark.parametrize("role", ["chief", "ps", "worker"])
def test_deaths_and_storage_trouble_are(role: str, code: int) -> None:
    assert Restarts(role).wait_before_next(code, time.monotonic()) == 1


@pytest.mark.parametrize(("role", "wait"), [("chief", None), ("ps", 1), ("worker", 1)])
def test_a_chief_that_is_gone_is_waited_for(role: str, wait: float | None) -> None:
    assert Restarts(role).wait_before_next(43, time.monotonic()) == wait


@pytest.mark.parametrize("code", [1, 45, 137])
def test_a_step_is_airflows_to_retry(code: int) -> None:
    assert Restarts(None).wait_before_next(code, time.monotonic()) is None
