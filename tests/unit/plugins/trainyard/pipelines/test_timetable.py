"""Dataset versions as partitions, and the ticks of a schedule."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pendulum
import pytest
from airflow.exceptions import InvalidPartitionKeyError
from airflow.timetables.base import DagRunInfo, TimeRestriction
from airflow.utils.types import DagRunType

from trainyard.pipelines import timetable as module
from trainyard.pipelines.timetable import DatasetVersionTimetable

UTC = datetime.UTC
VERSIONS = {
    "2.0.0": datetime.datetime(2026, 3, 1, tzinfo=UTC),
    "1.0.0": datetime.datetime(2026, 1, 1, tzinfo=UTC),
    "1.1.0": datetime.datetime(2026, 2, 1, tzinfo=UTC),
}
DAILY = "0 3 * * *"
FREE = TimeRestriction(earliest=None, latest=None, catchup=False)


Travel = Callable[[str], None]


@pytest.fixture
def travel(monkeypatch: pytest.MonkeyPatch) -> Travel:
    """Sets the time that the timetable sees."""
    return lambda text: monkeypatch.setattr(module, "pendulum_now", lambda zone: at(text))


def at(text: str) -> pendulum.DateTime:
    return pendulum.parse(text)  # type: ignore[return-value]


def keys(timetable: DatasetVersionTimetable, earliest: str, latest: str) -> list[str | None]:
    return [info.partition_key for info in timetable.iter_partition_dagrun_infos(earliest=at(earliest), latest=at(latest))]


def test_a_backfill_takes_the_versions_released_within_its_bounds_and_by_now(travel: Travel) -> None:
    travel("2026-02-15T00:00:00Z")
    timetable = DatasetVersionTimetable(VERSIONS)
    assert keys(timetable, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z") == ["1.0.0", "1.1.0"]
    assert keys(timetable, "2026-01-02T00:00:00Z", "2027-01-01T00:00:00Z") == ["1.1.0"]
    (info,) = timetable.iter_partition_dagrun_infos(earliest=at("2026-01-01"), latest=at("2026-01-15"))
    assert (info.partition_date, info.data_interval, info.logical_date) == (VERSIONS["1.0.0"], None, None)


def test_a_key_is_a_released_version(travel: Travel) -> None:
    travel("2026-02-15T00:00:00Z")
    timetable = DatasetVersionTimetable(VERSIONS)
    assert timetable.resolve_partition_date("1.1.0") == VERSIONS["1.1.0"]
    assert timetable.resolve_partition_date(None) is None
    with pytest.raises(InvalidPartitionKeyError, match=r"no dataset version '9\.9\.9'; there are 1\.0\.0, 1\.1\.0, 2\.0\.0"):
        timetable.resolve_partition_date("9.9.9")
    with pytest.raises(InvalidPartitionKeyError, match=r"'2\.0\.0' is released at 2026-03-01"):
        timetable.resolve_partition_date("2.0.0")


def tick(timetable: DatasetVersionTimetable, last: DagRunInfo | None) -> DagRunInfo | None:
    return timetable.next_dagrun_info_v2(last_dagrun_info=last, restriction=FREE)


def after(run_after: str, version: str) -> DagRunInfo:
    return DagRunInfo(at(run_after), None, pendulum.instance(VERSIONS[version]), version)


def test_without_a_schedule_there_is_no_tick_and_still_a_backfill() -> None:
    timetable = DatasetVersionTimetable(VERSIONS)
    assert tick(timetable, None) is None
    assert timetable.periodic, "Airflow refuses a backfill else"


def test_a_tick_takes_the_newest_version_released_by_then(travel: Travel) -> None:
    travel("2026-02-15T12:00:00Z")
    found = tick(DatasetVersionTimetable(VERSIONS, DAILY), None)
    assert found is not None
    assert (found.run_after, found.partition_key) == (at("2026-02-16T03:00:00Z"), "1.1.0")


def test_a_tick_that_is_due_is_not_moved_by_the_next_parse(travel: Travel) -> None:
    travel("2026-02-16T03:00:20Z")
    timetable = DatasetVersionTimetable(VERSIONS, DAILY)
    for last in (None, after("2026-02-15T03:00:00Z", "1.1.0")):
        found = tick(timetable, last)
        assert found is not None
        assert found.run_after == at("2026-02-16T03:00:00Z")
    found = tick(timetable, after("2026-02-16T03:00:00Z", "1.1.0"))
    assert found is not None
    assert found.run_after == at("2026-02-17T03:00:00Z")


def test_missed_ticks_come_to_one(travel: Travel) -> None:
    travel("2026-02-20T12:00:00Z")
    found = tick(DatasetVersionTimetable(VERSIONS, DAILY), after("2026-02-10T03:00:00Z", "1.1.0"))
    assert found is not None
    assert found.run_after == at("2026-02-20T03:00:00Z")


def test_before_the_first_release_there_is_no_tick(travel: Travel) -> None:
    travel("2025-06-01T00:00:00Z")
    found = tick(DatasetVersionTimetable(VERSIONS, DAILY), None)
    assert found is not None
    assert (found.run_after, found.partition_key) == (at("2026-01-01T03:00:00Z"), "1.0.0")


def test_a_backfill_of_a_late_version_does_not_stop_the_ticks(travel: Travel) -> None:
    travel("2026-02-15T12:00:00Z")
    found = tick(DatasetVersionTimetable(VERSIONS, DAILY), after("2026-02-01T00:00:00Z", "1.1.0"))
    assert found is not None
    assert found.run_after == at("2026-02-15T03:00:00Z")


@pytest.mark.parametrize("cron", [None, DAILY, "@weekly"])
def test_it_is_what_it_was_after_serialization(cron: str | None) -> None:
    timetable = DatasetVersionTimetable(VERSIONS, cron)
    again = DatasetVersionTimetable.deserialize(timetable.serialize())
    assert again == timetable
    assert list(again.versions) == ["1.0.0", "1.1.0", "2.0.0"]
    assert again != DatasetVersionTimetable(VERSIONS, "0 4 * * *")


def test_run_ids_never_meet() -> None:
    timetable = DatasetVersionTimetable(VERSIONS)
    made = {
        timetable.generate_run_id(run_type=kind, run_after=at("2026-01-01"), data_interval=None, partition_key="1.0.0")
        for kind in (DagRunType.BACKFILL_JOB, DagRunType.MANUAL, DagRunType.SCHEDULED)
        for _ in range(20)
    }
    assert len(made) == 60
    assert all("1.0.0" in run_id for run_id in made)
