"""The part of the log that is not in S3 yet.

What the child writes is cut into numbered chunks: when one is full, or when its oldest byte has waited ``FLUSH_S``. Chunks wait in
memory up to a bound, then on disk up to another. Beyond that a writer that is faster than S3 is slowed down, as by any pipe; but while
S3 takes nothing at all, new output is lost, which the log then says: a training must not stand still because its log does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 1024 * 1024
FLUSH_S: Final = 0.4
"""With the PUT itself a line is in S3 within a second."""
STALLED_S: Final = 10.0
"""S3 is taken to be away when no chunk went there for so long."""
MEMORY_BYTES: Final = 8 * 1024 * 1024
DISK_BYTES: Final = 256 * 1024 * 1024
"""A fraction of a slot's scratch, which the training needs itself."""


@dataclass
class Chunk:
    """A piece of the log, complete and numbered."""

    number: int
    size: int
    data: bytes | None
    """None when it lies on disk."""
    path: Path | None = None

    def read(self) -> bytes:
        if self.data is not None:
            return self.data
        assert self.path is not None
        return self.path.read_bytes()


class Spool:
    """A queue of chunks between one writer and one shipper; all methods may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        flush_s: float = FLUSH_S,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = DISK_BYTES,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._folder = folder
        self._chunk_bytes, self._flush_s, self._memory_bytes, self._disk_bytes = chunk_bytes, flush_s, memory_bytes, disk_bytes
        self._stalled_s = stalled_s
        self._progress = time.monotonic()
        self._condition = threading.Condition()
        self._open = bytearray()
        self._open_since = 0.0
        self._waiting: deque[Chunk] = deque()
        self._next = 0
        self._memory = 0
        self._disk = 0
        self._unsaid = 0
        self._closed = False
        self.lost = 0
        """Bytes that found no room."""

    def append(self, data: bytes) -> None:
        """Takes output of any size."""
        with self._condition:
            view = memoryview(data)
            while view:
                if not self._open:
                    self._open_since = time.monotonic()
                room = self._chunk_bytes - len(self._open)
                self._open += view[:room]
                view = view[room:]
                if len(self._open) >= self._chunk_bytes:
                    self._cut()
            self._condition.notify_all()

    def take(self) -> Chunk | None:
        """The next chunk, when there is one to ship; None once the spool is closed and empty. It stays first until ``shipped``."""
        with self._condition:
            while True:
                if not self._waiting and self._open and (self._closed or self._age() >= self._flush_s):
                    self._cut()
                if self._waiting:
                    return self._waiting[0]
                if self._closed:
                    return None
                self._condition.wait(self._flush_s - self._age() if self._open else None)

    def shipped(self) -> None:
        """The first chunk is in S3: its room is free."""
        with self._condition:
            chunk = self._waiting.popleft()
            if chunk.path is None:
                self._memory -= chunk.size
            else:
                self._disk -= chunk.size
                chunk.path.unlink(missing_ok=True)
            self._progress = time.monotonic()
            self._condition.notify_all()

    def close(self) -> None:
        """No more output comes."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    @property
    def backlog(self) -> int:
        """Bytes that wait."""
        with self._condition:
            return self._memory + self._disk + len(self._open)

    def _age(self) -> float:
        return time.monotonic() - self._open_since

    def _cut(self) -> None:
        said = bytes(self._open)
        self._open.clear()
        note = ""
        if self._unsaid:
            note = f"\n[supervisor] {self._unsaid} bytes of the log are lost here: S3 did not answer and the spool was full\n"
        data = note.encode() + said
        chunk = Chunk(self._next, len(data), data)
        while not self._find_room(chunk):
            if self._closed or time.monotonic() - self._progress >= self._stalled_s:
                self.lost += len(said)
                self._unsaid += len(said)
                return
            self._condition.wait(0.1)
        self._unsaid = 0
        self._next += 1
        self._waiting.append(chunk)
        # Now and not when all is appended: a long piece of output waits for room that only the shipper can make.
        self._condition.notify_all()

    def _find_room(self, chunk: Chunk) -> bool:
        if self._memory + chunk.size <= self._memory_bytes or not self._waiting:
            self._memory += chunk.size
            return True
        return self._to_disk(chunk)

    def _to_disk(self, chunk: Chunk) -> bool:
        if self._disk + chunk.size > self._disk_bytes:
            return False
        path = self._folder / f"{chunk.number:08d}.log"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chunk.data or b"")
        except OSError:
            try:
                path.unlink()  # what was written of it takes the room that is missing
            except OSError:
                pass
            return False
        chunk.data, chunk.path = None, path
        self._disk += chunk.size
        return True
