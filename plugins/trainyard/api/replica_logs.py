"""The log store of a run, read by cursor: what a replica's supervisors shipped, in order, also while they still write.

``runs/<run>/logs/<replica>/<attempt>/<n:08d>.log``, where an attempt is ``<started>-<pod>`` and its ``end.json`` says that it is whole.
A cursor is ``<attempt>:<chunk>:<offset>``: it stays good for ever, and a reader that comes back with it misses nothing and gets nothing
twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from trainyard.contract import keys
from trainyard.errors import ConfigError, NotFoundError
from trainyard.store import Store

ANSWER_BYTES = 4 * 2**20
"""At most this much in one answer: a reader asks again."""
_REPLICA = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True)
class Piece:
    """A piece of a log: its bytes, where the next begins, and whether there is more now, perhaps later, or never."""

    data: bytes
    cursor: str
    state: str
    """``more`` (ask again at once), ``waiting`` (nothing more for now) or ``ended``."""


def overview(store: Store, run: str) -> list[dict[str, Any]]:
    """The replicas of a run that have a log, each with its attempts: bytes, exit code, whether it is whole."""
    found = []
    for replica in sorted(store.list_folders(keys.logs(run)), key=_order):
        attempts = []
        for attempt in sorted(store.list_folders(keys.logs(run, replica))):
            folder = f"{keys.logs(run, replica)}{attempt}/"
            chunks = [info for info in store.list(folder) if info.key.endswith(".log")]
            end = store.get_json(f"{folder}end.json")
            count = sum(info.size for info in chunks)
            attempts.append(
                {
                    "attempt": attempt,
                    "bytes": count,
                    "exit_code": end["exit_code"] if end else None,
                    "whole": end is not None and end["chunks"] == len(chunks) and end["bytes"] == count,
                }
            )
        found.append({"replica": replica, "attempts": attempts})
    return found


def read(store: Store, run: str, replica: str, cursor: str, *, run_is_over: bool) -> Piece:
    """What follows ``cursor`` (empty: the beginning) in a replica's log.

    Raises:
        NotFoundError: no such replica.
        ConfigError: the cursor is not one of ours.
    """
    if not _REPLICA.fullmatch(replica):
        raise NotFoundError(f"no replica is named `{replica}`")
    attempts = sorted(store.list_folders(keys.logs(run, replica)))
    if not attempts:
        raise NotFoundError(f"run {run} has no log of `{replica}`")
    attempt, chunk, offset = _parse(cursor) if cursor else (attempts[0], 0, 0)
    if attempt not in attempts:
        raise ConfigError(f"cursor `{cursor}` does not belong to the log of `{replica}`: begin again without one")
    folder = f"{keys.logs(run, replica)}{attempt}/"
    # Looked at before the chunks: an end that was there before guarantees that every chunk is.
    end = store.head(f"{folder}end.json")
    data = bytearray()
    for info in store.list(folder, after=_key(folder, chunk - 1) if chunk else None):
        if not info.key.endswith(".log"):
            continue
        if info.key != _key(folder, chunk):
            break  # a later chunk arrived first: its turn comes when the one before is there
        piece = store.get_range(info.key, offset, min(info.size - offset, ANSWER_BYTES - len(data)))
        data += piece
        offset += len(piece)
        if offset < info.size:
            return Piece(bytes(data), f"{attempt}:{chunk}:{offset}", "more")
        chunk, offset = chunk + 1, 0
        if len(data) >= ANSWER_BYTES:
            return Piece(bytes(data), f"{attempt}:{chunk}:0", "more")
    here = f"{attempt}:{chunk}:{offset}"
    later = attempts[attempts.index(attempt) + 1 :]
    # An attempt whose supervisor was killed has no end: a later attempt says that it is over.
    if later and (end or not data):
        return Piece(bytes(data), f"{later[0]}:0:0", "more")
    if later:
        return Piece(bytes(data), here, "more")
    return Piece(bytes(data), here, "ended" if end or run_is_over else "waiting")


def _key(folder: str, chunk: int) -> str:
    return f"{folder}{chunk:08d}.log"


def _parse(cursor: str) -> tuple[str, int, int]:
    attempt, _, place = cursor.partition(":")
    chunk, _, offset = place.partition(":")
    if not (_ATTEMPT.fullmatch(attempt) and chunk.isdecimal() and offset.isdecimal() and len(place) < 40):
        raise ConfigError(f"cursor `{cursor[:60]}` is not one of ours: begin again without one")
    return attempt, int(chunk), int(offset)


def _order(replica: str) -> tuple[int, str, int]:
    """Steps as they run, then the gang's replicas by index: ``worker-2`` before ``worker-10``."""
    name, _, index = replica.rpartition("-")
    stem = name if name and index.isdecimal() else replica
    places = ("prepare", "shard", "plan", "chief", "ps", "worker", "evaluate", "gate", "export")
    return (places.index(stem) if stem in places else len(places), stem, int(index) if index.isdecimal() else 0)
