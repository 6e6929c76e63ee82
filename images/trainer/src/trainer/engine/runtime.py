"""TensorFlow in this process: its threads by the pod's limit, its log by what a person needs."""

from __future__ import annotations

from trainer.engine.quiet import hush, quiet_import


def start(threads: int) -> None:
    """Imports TensorFlow with ``threads`` threads for computing: it would count the host's cores, not the pod's limit."""
    with quiet_import():
        import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        # A blocked operation must never hold the last thread.
        tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))
    except RuntimeError:  # it has computed before in this process: its threads are what they are
        pass
    hush()
