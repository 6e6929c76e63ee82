"""Whether this gang's generation still holds the run. Asked before every write that another generation could contradict.

The operator moves ``generation.json`` by compare-and-swap; a chief behind a cut cable finds its number gone and writes nothing more.
"""

from __future__ import annotations

from trainer.errors import SupersededError
from trainer.storage import keys
from trainer.storage.objects import Bucket


class Generation:
    """One generation of a run's gang."""

    def __init__(self, data: Bucket, run: str, number: int) -> None:
        self._data, self._run, self.number = data, run, number

    def check(self) -> None:
        """Returns only while ``generation.json`` names this generation.

        Raises:
            SupersededError: it names another, or is not there.
            StorageError: S3 does not answer.
        """
        key = keys.generation(self._run)
        document = self._data.get_json(key)
        if document is None:
            raise SupersededError(f"{self._data.url(key)} is not there: nothing says that generation {self.number} holds the run")
        if document.get("generation") != self.number:
            raise SupersededError(f"generation {document.get('generation')} holds the run, this is generation {self.number}: it ends")
