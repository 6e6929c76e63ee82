"""A parameter server or worker: one ``tf.distribute.Server`` in a process without Keras, and a watch over its chief.

It computes what the chief's functions say, in its own current directory. It ends in one of four ways:

- the chief wrote the file ``DONE`` here through TensorFlow: 0, within half a second;
- the chief was seen and its port has been away for ``GRACE_S``: CHIEF_GONE;
- the chief never came within the start deadline: PEERS_MISSING;
- TERM, or whatever its supervisor decides.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainer.engine.peers import answers
from trainer.engine.quiet import quiet_import
from trainer.environment import Gang
from trainer.errors import ChiefGoneError, PeersMissingError

DONE = Path("DONE")
"""Written by the chief into each peer's current directory: relative on purpose."""
GRACE_S = 5.0
"""How long a chief that was there may be away: it may be restarted in place by its supervisor."""
POLL_S = 0.4


def import_tensorflow() -> None:
    """TensorFlow without Keras, which costs a third of the import and 80 MB, and is never called here: the chief traces, we execute."""
    if "tensorflow" not in sys.modules:
        sys.modules["keras"] = None  # type: ignore[assignment]
    with quiet_import():
        import tensorflow  # noqa: F401


def serve(gang: Gang, threads: int, start_deadline_s: float, say: Callable[[str], None]) -> None:
    """Starts the server and returns when the chief said DONE.

    Raises:
        ChiefGoneError: the chief was there and is gone.
        PeersMissingError: the chief never came.
    """
    DONE.unlink(missing_ok=True)  # of an earlier life in the same directory
    import_tensorflow()
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.intra_op_parallelism_threads = threads
    # A blocked operation must never hold the last thread.
    config.inter_op_parallelism_threads = max(2, threads)
    cluster = tf.train.ClusterSpec({role: list(hosts) for role, hosts in gang.addresses.items()})
    server = tf.distribute.Server(cluster, job_name=gang.role, task_index=gang.index, protocol="grpc", config=config, start=True)
    say(f"{gang.replica} serves on {gang.own_address} with {threads} thread(s)")
    _watch(gang.chief_address, start_deadline_s)
    del server  # kept alive until here


def _watch(chief: str, start_deadline_s: float) -> None:
    began = seen = time.monotonic()
    ever = False
    while True:
        time.sleep(POLL_S)
        if DONE.exists():
            return
        now = time.monotonic()
        if answers(chief):
            ever, seen = True, now
        elif ever and now - seen > GRACE_S:
            raise ChiefGoneError(f"the chief ({chief}) has been away for {now - seen:.0f} s")
        elif not ever and now - began > start_deadline_s:
            raise PeersMissingError(f"the chief ({chief}) did not come within {start_deadline_s:.0f} s")
