"""Read at the start of every Python of our images (``trainyard.pth``): as PID 1 it ends on TERM, as it would anywhere else.

The kernel does not apply a signal's default to PID 1: a TERM that comes before a program has asked for it is lost (the supervisor needs a
quarter of a second until then, Airflow imports for seconds), and one that never asks, as upkeep's, would take the whole grace of its pod to
end. It is no handler of a program's own: whoever installs one replaces this.
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
