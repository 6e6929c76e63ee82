"""Read at the start of every Python of this image (``trainyard.pth``): as PID 1 it ends on TERM, as it would anywhere else.

The kernel does not apply a signal's default to PID 1, so a Python that has not asked for TERM, or not yet while it imports Airflow for
seconds, would take the whole grace of its pod to end. It is no handler of the program's own: whoever installs one replaces this.
"""

import os
import signal
import sys
import types


def _end(number: int, frame: types.FrameType | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError, RuntimeError):  # closed, absent, or in the midst of a write
            pass
    os._exit(128 + number)


if os.getpid() == 1:
    signal.signal(signal.SIGTERM, _end)
