"""The supervisor's connection to S3, opened by whichever of its threads needs it first; boto3's import is never on the main thread.

Its time-outs are short and it does not retry by itself: every user here has a loop of its own, with a bound.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.storage.objects import Bucket


@dataclass(frozen=True)
class Place:
    """Where the run's objects lie: the little that the supervisor must know of the run spec."""

    run: str
    endpoint: str | None
    region: str
    bucket: str

    @classmethod
    def of(cls, text: str | None) -> Place | None:
        """The place a run spec names; None when it cannot be read (the child will say why)."""
        try:
            document: Any = json.loads(text or "")
            storage = document["storage"]
            return cls(run=document["run"], endpoint=storage["endpoint"], region=storage["region"], bucket=storage["bucket"])
        except (ValueError, KeyError, TypeError):
            return None


class Remote:
    """The run's data bucket, connected on first use."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._bucket: Bucket | None = None

    def bucket(self) -> Bucket:
        """The bucket.

        Raises:
            Exception: whatever boto3 raises when it cannot be set up; nothing is sent yet.
        """
        with self._lock:
            if self._bucket is None:
                from trainer.spec import StorageSpec
                from trainer.storage.client import connect
                from trainer.storage.objects import Bucket

                place = self.place
                storage = StorageSpec(endpoint=place.endpoint, region=place.region, bucket=place.bucket, models_bucket="")
                self._bucket = Bucket(connect(storage, attempts=1, connect_timeout_s=3, read_timeout_s=15), place.bucket)
            return self._bucket
