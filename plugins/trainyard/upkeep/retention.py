"""What ``retention`` of a tenant's file says: old runs' folders and old model versions go from S3.

A run's folder goes by its youngest object: who writes into it still, or again, keeps it. Its ``result.json`` stays, by which later runs
know what was trained last, and people what became of it. Of a model the newest versions stay, and the champion; the claims of version
numbers too, or a number would be given twice. S3's own lifecycle rules know neither champions nor counts, and servers differ in them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from trainyard.contract import keys
from trainyard.settings import Settings
from trainyard.settings.tenants import Retention
from trainyard.store import Store, models_store_for, store_for

WITHOUT_RESULT_DAYS: Final = 30
"""A run without a result may wait in Airflow's queue: nothing of it is touched for so long at least."""


@dataclass(frozen=True)
class Removed:
    """One folder that went, or in a dry run would."""

    what: str
    """``run digits-mlp-0123456789`` or ``model digits-mlp version 3``."""
    objects: int


def apply(settings: Settings, *, dry_run: bool, now: dt.datetime, log: Callable[[str], None] = print) -> int:
    """One round over all tenants; how many folders went.

    Raises:
        RefusedError, UnavailableError: of S3; what came before it is done.
    """
    count = 0
    for name, tenant in settings.tenants.items():
        buckets = store_for(settings, name), models_store_for(settings, name)
        for removed in sweep(*buckets, tenant.retention, now=now, dry_run=dry_run):
            log(f"{name}: {'would remove' if dry_run else 'removed'} {removed.what}: {removed.objects} objects")
            count += 1
    return count


def sweep(data: Store, models: Store, retention: Retention, *, now: dt.datetime, dry_run: bool) -> Iterator[Removed]:
    """One tenant's.

    Args:
        data: its data bucket.
        models: its models bucket.
        retention: what its file says; without a number nothing goes.
        now: by which ages are reckoned.
        dry_run: only say what would go.
    """
    if retention.runs_days is not None:
        yield from _runs(data, retention.runs_days, now, dry_run)
    if retention.model_versions is not None:
        yield from _models(models, retention.model_versions, dry_run)


def _runs(store: Store, days: int, now: dt.datetime, dry_run: bool) -> Iterator[Removed]:
    for run in store.list_folders(keys.RUNS):
        found = list(store.list(keys.run_root(run)))
        result = keys.run_result(run)
        doomed = [one.key for one in found if one.key != result]
        if not doomed:
            continue
        kept_for = days if len(doomed) < len(found) else max(days, WITHOUT_RESULT_DAYS)
        if max(one.modified for one in found) > now - dt.timedelta(days=kept_for):
            continue
        if not dry_run:
            for key in doomed:
                if "/" not in key.removeprefix(keys.run_root(run)):
                    store.delete(key)
            for folder in list(store.list_folders(keys.run_root(run))):
                store.delete_prefix(f"{keys.run_root(run)}{folder}/")
        yield Removed(f"run {run}", len(doomed))


def _models(store: Store, keep: int, dry_run: bool) -> Iterator[Removed]:
    for model in store.list_folders(""):
        numbers = sorted(int(name) for name in store.list_folders(f"{model}/") if name.isdigit())
        # Without its marker a version is still being exported, or was left half: neither is a version yet.
        whole = [number for number in numbers if store.exists(keys.model_marker(model, number))]
        champion = (store.get_json(keys.champion(model)) or {}).get("version")
        for number in whole[:-keep]:
            if number == champion:
                continue
            count = sum(1 for _ in store.list(keys.model_version(model, number)))
            if not dry_run:
                # First of all: a version without a marker is none, however far this comes.
                store.delete(keys.model_marker(model, number))
                store.delete_prefix(keys.model_version(model, number))
            yield Removed(f"model {model} version {number}", count)
