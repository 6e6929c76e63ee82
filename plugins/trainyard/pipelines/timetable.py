"""Dataset versions as Airflow's partitions: a run's partition key is a version, its partition date the version's release.

So Airflow's own backfill, form, REST API and command line work over versions. Measured on Airflow 3.3.2 (docs/adr/0003).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from airflow.exceptions import InvalidPartitionKeyError
from airflow.timetables._cron import CronMixin
from airflow.timetables.base import DagRunInfo, DataInterval, Timetable
from airflow.utils.strings import get_random_string
from pendulum import DateTime
from pendulum import instance as aware
from pendulum import now as pendulum_now

if TYPE_CHECKING:
    from airflow.timetables.base import TimeRestriction
    from airflow.utils.types import DagRunType

FRESH = datetime.timedelta(minutes=5)
"""Of a DAG that has never run: a tick that is not older than this is still taken, so that none is lost between two parses."""


class DatasetVersionTimetable(Timetable):
    """Partitions are the versions of one dataset; ticks, if any, come from a cron expression in UTC.

    Args:
        versions: version → release time with time zone; the times are distinct.
        cron: when to train the newest version by itself; None: only when asked (form, backfill).
    """

    partitioned = True
    # Backfill refuses a timetable that is not periodic, also where nothing ticks.
    periodic = True
    can_be_scheduled = True

    def __init__(self, versions: Mapping[str, datetime.datetime], cron: str | None = None) -> None:
        self.versions = {key: aware(date) for key, date in sorted(versions.items(), key=lambda item: item[1])}
        self.cron = cron
        self._ticks = CronMixin(cron, "UTC") if cron else None
        self.description = self._ticks.description if self._ticks else "On request only"

    @property
    def summary(self) -> str:
        """What the UI shows as the schedule."""
        return self.cron or "on request"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.serialize() == other.serialize()

    def __hash__(self) -> int:
        return hash((self.cron, tuple(self.versions.items())))

    def serialize(self) -> dict[str, Any]:
        """As part of the serialized DAG."""
        return {"cron": self.cron, "versions": {key: date.isoformat() for key, date in self.versions.items()}}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Self:
        """The inverse of :meth:`serialize`."""
        return cls({key: datetime.datetime.fromisoformat(date) for key, date in data["versions"].items()}, data["cron"])

    # ------------------------------------------------------------------------------------------------------------ partitions
    def iter_partition_dagrun_infos(self, *, earliest: datetime.datetime, latest: datetime.datetime) -> Iterable[DagRunInfo]:
        """The versions released within the bounds, for a backfill; what is not released yet does not exist."""
        latest = min(latest, pendulum_now("UTC"))
        for key, date in self.versions.items():
            if earliest <= date <= latest:
                yield DagRunInfo(run_after=date, data_interval=None, partition_date=date, partition_key=key)

    def _decode_partition_date(self, partition_key: str) -> datetime.datetime:
        date = self.versions.get(partition_key)
        if date is None:
            raise InvalidPartitionKeyError(f"no dataset version {partition_key!r}; there are {', '.join(self.versions)}")
        if date > pendulum_now("UTC"):
            raise InvalidPartitionKeyError(f"dataset version {partition_key!r} is released at {date.isoformat()}")
        return date

    # ----------------------------------------------------------------------------------------------------------------- ticks
    def next_dagrun_info(self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction) -> DagRunInfo | None:
        """Airflow asks a partitioned timetable by :meth:`next_dagrun_info_v2` only: intervals mean nothing here."""
        return self.next_dagrun_info_v2(last_dagrun_info=None, restriction=restriction)

    def next_dagrun_info_v2(self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction) -> DagRunInfo | None:
        """The next tick after the last run, with the newest version released by then; missed ticks come to one."""
        if self._ticks is None:
            return None
        tick = self._next_tick(last_dagrun_info, restriction.earliest)
        first = next(iter(self.versions.values()))
        if tick < first:
            tick = self._ticks._align_to_next(first)
        if restriction.latest is not None and tick > restriction.latest:
            return None
        key = [key for key, date in self.versions.items() if date <= tick][-1]
        return DagRunInfo(run_after=tick, data_interval=None, partition_date=self.versions[key], partition_key=key)

    def _next_tick(self, last: DagRunInfo | None, earliest: DateTime | None) -> DateTime:
        assert self._ticks is not None
        now = pendulum_now("UTC")
        passed = self._ticks._align_to_prev(now)
        if last is not None:
            # Never from now alone: each parse would move a tick that is due into the future, and none would ever come.
            return max(passed, self._ticks._get_next(last.run_after))
        # A DAG that is new begins with the next tick, not with one of last week.
        tick = passed if now - passed <= FRESH else self._ticks._align_to_next(now)
        return max(tick, self._ticks._align_to_next(earliest)) if earliest is not None else tick

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """A run that a person starts with a logical date: an instant."""
        return DataInterval.exact(run_after)

    def generate_run_id(self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any) -> str:
        """Unique at every call: a version reprocessed by a backfill gets a run beside the old one."""
        key = extra.get("partition_key")
        parts = [run_after.isoformat(), *([key] if key else []), get_random_string()]
        return run_type.generate_run_id(suffix="__".join(parts))
