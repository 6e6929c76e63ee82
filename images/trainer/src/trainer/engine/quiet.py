"""TensorFlow's words made short: banners at its import, and pages for each lost replica, at level ERROR, for what it then mends."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WORKER_FAILED = re.compile(r"^Worker /job:worker/replica:0/task:(\d+) failed with (\w+)")
_DROPPED = (
    "Remote function on worker",
    "encountered the following error when processing closure",
    "triggered tf.function retracing",  # every save of a checkpoint traces anew, by TensorFlow's own making
    "This derived error is ignored",
    "Start cancelling closures due to error",  # the chief says it in a line of its own
)
_AGAIN_S = 30.0


class CoordinatorFilter(logging.Filter):
    """One line a worker and half minute for a lost worker, nothing for what follows from it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        found = _WORKER_FAILED.match(message)
        if found:
            worker, now = found.group(1), self._clock()
            if now - self._said.get(worker, -_AGAIN_S) < _AGAIN_S:
                return False
            self._said[worker] = now
            record.msg = f"worker-{worker} is lost ({found.group(2)}): the others go on, and it is used again when it is back"
            record.args = ()
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            return True
        return not any(text in message for text in _DROPPED)


_BANNERS = (b"All log messages before absl::InitializeLog()", b"oneDNN custom operations are on")


@contextmanager
def quiet_import() -> Iterator[None]:
    """Takes TensorFlow's banners out of what is written to stderr inside; all else comes through at the end.

    They are four lines from each process, written by C++ before any log level holds.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            held.seek(0)
            for line in held:
                if not any(banner in line for banner in _BANNERS):
                    os.write(stderr, line)
            os.close(stderr)


def hush() -> None:
    """To be called once, after TensorFlow's import."""
    import tensorflow as tf

    logger = tf.get_logger()
    if not any(isinstance(f, CoordinatorFilter) for f in logger.filters):
        logger.addFilter(CoordinatorFilter())
        # Handlers of absl's would say each line twice.
        logger.propagate = False
