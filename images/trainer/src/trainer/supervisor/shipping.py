"""The thread that puts the log's chunks into S3, in order, again and again until S3 takes them.

``runs/<run>/logs/<replica>/<started>-<pod>/<n:08d>.log``, and at the very end ``end.json``, by which a reader knows that the log is
whole.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from trainer.supervisor.remote import Remote
from trainer.supervisor.spool import Chunk, Spool

LONGEST_WAIT_S: Final = 5.0


def folder(run: str, replica: str, pod: str, started: datetime | None = None) -> str:
    """The log's folder; the time comes first so that names sort by it."""
    from trainer.storage import keys

    moment = (started or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    return f"{keys.logs(run, replica)}{moment}-{re.sub(r'[^A-Za-z0-9.-]', '-', pod) or 'pod'}/"


class Shipper:
    """Ships a spool until it is closed and empty."""

    def __init__(self, spool: Spool, remote: Remote, folder: str, say: Callable[[str], None]) -> None:
        """``say`` is told when S3 stops and starts answering; what it says must not come back into the spool's way (it may)."""
        self._spool, self._remote, self._folder, self._say = spool, remote, folder, say
        self._deadline: float | None = None
        self._wake = threading.Event()
        self._exit_code: int | None = None
        self._chunks = 0
        self._bytes = 0
        self._complete = False
        self._thread = threading.Thread(target=self._work, name="shipper", daemon=True)
        self._thread.start()

    def close(self, exit_code: int, deadline_s: float) -> bool:
        """Ships what is left within the deadline; says whether all of it is in S3."""
        self._exit_code = exit_code
        self._deadline = time.monotonic() + deadline_s
        self._spool.close()
        self._wake.set()
        self._thread.join(deadline_s)
        return self._complete

    def _work(self) -> None:
        while (chunk := self._spool.take()) is not None:
            if not self._until_put(f"{self._folder}{chunk.number:08d}.log", chunk):
                return
            self._spool.shipped()
            self._chunks += 1
            self._bytes += chunk.size
        end = {"exit_code": self._exit_code, "bytes": self._bytes, "chunks": self._chunks, "lost": self._spool.lost}
        self._complete = self._until_put(f"{self._folder}end.json", end)

    def _until_put(self, key: str, content: Chunk | dict[str, Any]) -> bool:
        wait, failed = 0.2, False
        while True:
            try:
                bucket = self._remote.bucket()
                if isinstance(content, Chunk):
                    bucket.put(key, content.read(), content_type="text/plain; charset=utf-8")
                else:
                    bucket.put_json(key, content)
            except Exception as error:  # whatever it is, the log is worth another try
                if not failed:
                    failed = True
                    self._say(f"the log waits here until S3 takes it: {error}")
                if self._deadline is not None and time.monotonic() + wait > self._deadline:
                    return False
                # Once the end has begun the event stays set, and waiting on it would be no wait.
                if self._wake.is_set():
                    time.sleep(wait)
                else:
                    self._wake.wait(wait)
                wait = min(wait * 2, LONGEST_WAIT_S if self._deadline is None else 0.5)
                continue
            if failed:
                self._say("S3 takes the log again")
            return True
