"""Follows a run to its end and says what happens as events: the one source of ``--json`` lines and of the live view.

Events, each a dict:

* ``{"event": "run", "run", "dag_id", "run_id", "dataset_version"}``: once;
* ``{"event": "step", "step", "state", "seconds", "try"}``: a step changed (a mapped step is one: its worst state, its whole span);
* ``{"event": "progress", "step", "total_steps", "epoch", "loss", "examples_per_second"}``: training moved;
* ``{"event": "note", "text"}``: Airflow does not answer for now, or answers again;
* ``{"event": "end", "state", "outcome", "reason", "metrics", "accuracy", "model", "model_version",
  "dataset_version", "seconds", "steps"}``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.contract.names import NOTE_CANCELLED
from trainyard.errors import UnavailableError

POLL_S = 1.0
AWAY_LIMIT_S = 180.0
"""How long Airflow may be away while a run is followed: a restart of it costs no training, so it should cost no follower."""

ENDED = frozenset({"success", "failed"})
"""States of a run that are final."""
# A step that is many task instances shows the state that matters most.
_WORST_FIRST = (
    "failed",
    "upstream_failed",
    "running",
    "restarting",
    "deferred",
    "up_for_retry",
    "up_for_reschedule",
    "queued",
    "scheduled",
    "removed",
    "waiting",
    "skipped",
    "success",
)


def steps_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a step, in the order of the pipeline: name, state, seconds (from the first start to the last end), tries."""
    rows: dict[str, dict[str, Any]] = {}
    for item in document["steps"]:
        state = item["state"] or "waiting"
        empty = {"step": item["step"], "state": state, "start": None, "end": None, "try": 0, "parts": 0, "done": 0, "open": False}
        row = rows.setdefault(item["step"], empty)
        row["state"] = min(row["state"], state, key=_rank)
        row["try"] = max(row["try"], item["try"] or 0)
        row["parts"] += 1
        row["done"] += state == "success"
        row["start"] = min(filter(None, (row["start"], item["start"])), default=None)
        row["end"] = max(filter(None, (row["end"], item["end"])), default=None)
        row["open"] |= item["end"] is None
    for row in rows.values():
        row["seconds"] = _span(row["start"], None if row["open"] else row["end"])
    return list(rows.values())


def follow(
    read: Callable[[], dict[str, Any]], *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> Iterator[dict[str, Any]]:
    """The events of a run until it ends; ``read`` gives the run's present document.

    Raises:
        UnavailableError: Airflow was away for longer than :data:`AWAY_LIMIT_S`.
    """
    known: dict[str, tuple[str, int, int]] = {}
    progress: dict[str, Any] | None = None
    announced = False
    away_since: float | None = None
    while True:
        try:
            document = read()
        except UnavailableError as e:
            first = away_since is None
            away_since = clock() if away_since is None else away_since
            if clock() - away_since > AWAY_LIMIT_S:
                raise
            if first:
                yield {"event": "note", "text": f"{e}; the run goes on, looking again"}
            sleep(POLL_S * 2)
            continue
        if away_since is not None:
            away_since = None
            yield {"event": "note", "text": "Airflow answers again"}
        if not announced:
            announced = True
            yield {"event": "run", **{key: document[key] for key in ("run", "dag_id", "run_id", "dataset_version")}}
        steps = steps_of(document)
        for row in steps:
            seen = (row["state"], row["try"], row["done"])
            if known.get(row["step"]) != seen:
                known[row["step"]] = seen
                if row["state"] != "waiting":
                    yield {"event": "step", **{key: row[key] for key in ("step", "state", "seconds", "try", "parts", "done")}}
        if document["progress"] and document["progress"] != progress:
            progress = document["progress"]
            yield {"event": "progress", **progress}
        if document["state"] in ENDED:
            yield end_event(document)
            return
        sleep(POLL_S)


def end_event(document: dict[str, Any]) -> dict[str, Any]:
    """How a run ended, with its evidence."""
    result = document["result"] or {}
    metrics = result.get("metrics") or {}
    return {
        "event": "end",
        "run": document["run"],
        "state": document["state"],
        "outcome": result.get("outcome"),
        "reason": _reason(document, result),
        "metrics": metrics,
        "accuracy": metrics.get("accuracy"),
        "model": result.get("model"),
        "model_version": result.get("model_version"),
        "dataset_version": result.get("dataset_version") or document["dataset_version"],
        "seconds": document["seconds"],
        "steps": {row["step"]: row["seconds"] for row in steps_of(document)},
    }


def _reason(document: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Why it ended as it did: a person's word first, then the platform's, then the failed step's own (``failure``)."""
    note = document.get("note") or ""
    return note if note.startswith(NOTE_CANCELLED) else result.get("reason") or document.get("failure")


def _rank(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else 3  # a state that Airflow adds is most like a running one


def _span(start: str | None, end: str | None) -> float | None:
    if start is None:
        return None
    from datetime import UTC, datetime

    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return round(max(0.0, (until - datetime.fromisoformat(start)).total_seconds()), 1)
