"""The end of every run, good or bad: nothing of it is left in the cluster, and its outcome is written down.

Runs as the last pod of a run, in the platform's namespace, with the one identity that may delete a tenant's Jobs; by hand it is
``python -m trainyard.upkeep clean-up``. Any step can be repeated at any moment, this one too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kubernetes import client as k8s

from trainyard.contract import keys, names
from trainyard.errors import ConflictError
from trainyard.kube.labels import run_selector
from trainyard.kube.takedown import Takedown
from trainyard.store import Store

RESULT_VERSION = 1
Outcome = Literal["failed", "cancelled"]


@dataclass(frozen=True)
class CleanUp:
    """What a clean-up found."""

    took_s: float
    """Seconds until nothing of the run was left in the cluster."""
    ended_uploads: int
    """Multipart uploads that nobody would have completed."""
    outcome: str
    """The run's outcome as it stands in its ``result.json``."""


def clean_up(
    api: k8s.ApiClient, store: Store, *, tenant: str, run: str, outcome: Outcome = "failed", log: Callable[[str], None] = print
) -> CleanUp:
    """Take down what the run left, end its uploads, and write its outcome if no step has.

    Args:
        api: a client that may delete in the tenant's namespace.
        store: the tenant's data bucket, with an identity that may write ``runs/``.
        tenant: whose run it is.
        run: its short name.
        outcome: what it comes to if neither ``export``, ``gate`` nor ``check`` has said.
        log: takes one line at a time.

    Raises:
        UnavailableError: the cluster or S3 does not answer, or pods are still there at the end of the bound, by name.
        RefusedError: S3 refuses.
    """
    took = Takedown(api, names.namespace(tenant), log).remove_matching(run_selector(run))
    log(f"run {run}: nothing left in namespace {names.namespace(tenant)} after {took:.1f} s")
    uploads = store.abort_uploads(keys.run_root(run))
    if uploads:
        log(f"run {run}: ended {uploads} incomplete uploads")
    result = _write_result(store, run, outcome)
    log(f"run {run}: outcome {result['outcome']}" + (f" ({result['reason']})" if result.get("reason") else ""))
    return CleanUp(took, uploads, str(result["outcome"]))


def _write_result(store: Store, run: str, outcome: Outcome) -> dict[str, Any]:
    found = store.get_json_with_etag(keys.run_result(run))
    # An end like this one is of an earlier try of the run: the last word is the present one's. A step's own word stays.
    if found is not None and found[0]["outcome"] not in get_args(Outcome):
        return dict(found[0])
    spec = store.get_json(keys.spec(run)) or {}
    result: dict[str, Any] = {
        "version": RESULT_VERSION,
        "outcome": outcome,
        "reason": _reason(store, run),
        "metrics": {},
        "model": (spec.get("export") or {}).get("model"),
        "model_version": None,
        "dataset_version": (spec.get("dataset") or {}).get("version"),
        "ended": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }
    try:
        store.put_json(keys.run_result(run), result, if_match=found[1] if found else None, if_none_match=found is None)
    except ConflictError:  # export was the quicker one: its word counts
        return dict(store.get_json(keys.run_result(run)) or result)
    return result


def _reason(store: Store, run: str) -> str | None:
    """Why, as far as S3 knows: how the last generation of the gang ended."""
    generation = (store.get_json(keys.generation(run)) or {}).get("generation")
    if not isinstance(generation, int):
        return None
    ended = store.get_json(keys.generation_result(run, generation)) or {}
    if not ended.get("reason") or ended["reason"] == "Ok":
        return None
    message = str(ended.get("message") or "").strip().splitlines()
    return f"{ended['reason']}: {message[-1]}" if message else str(ended["reason"])
