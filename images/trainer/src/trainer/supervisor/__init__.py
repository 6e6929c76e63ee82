"""PID 1 of every trainer container: ``python -m trainer.supervisor -- COMMAND…``.

It starts the command as its child, passes TERM on to the child's group, reaps orphans, ships what the child writes (Python and C++
alike: they are the child's file descriptors 1 and 2) to S3 while it is written, and exits with the child's code. In a gang it also
restarts the child after small faults, and tells the gang how it ended.

It is not the training: nothing here imports TensorFlow, and S3 is only ever spoken to from threads of its own, so that neither a slow
start nor a slow server holds the child up.

::

    __main__    reads the environment and puts the parts together
    life        the main thread: start, wait, signals, restart or end
    processes   child, group, orphans
    output      the child's pipe: read, passed on, kept for the message
    spool       chunks not yet shipped: in memory, then on disk, then lost and said so
    shipping    the thread that puts chunks into S3
    remote      the connection to S3, opened in the background
    watchers    what may end a child from outside: the base of gang_watch (and the place for a heartbeat's watch)
    gang_watch  results, failures and generations in S3
    restarts    which ends are worth another try
"""
