"""``python -m trainer.supervisor -- COMMAND…``: reads the environment, puts the supervisor's parts together, and ends with its code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from trainer import environment
from trainer.errors import UserError
from trainer.exit_codes import ExitCode
from trainer.supervisor.life import Life
from trainer.supervisor.output import MESSAGE_BYTES, Output
from trainer.supervisor.remote import Place, Remote
from trainer.supervisor.shipping import Shipper, folder
from trainer.supervisor.spool import Spool

SHIP_S: Final = 30.0
"""How long the rest of the log is offered to S3 after the child's end."""
SHIP_AFTER_TERM_S: Final = 3.0
"""The same after a TERM: the pod's grace is running."""
SPOOL: Final = Path(".supervisor")
TERMINATION_LOG: Final = "/dev/termination-log"


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Supervises the command after ``--`` and gives the container's exit code."""
    if arguments[:1] != ["--"] or len(arguments) < 2:
        print("usage: python -m trainer.supervisor -- COMMAND [ARGUMENT…]", file=sys.stderr)
        return 2
    place = Place.of(environ.get(environment.RUN_SPEC))
    try:
        gang, replica = environment.gang(environ), environment.replica_name(environ)
    except UserError:
        gang, replica = None, environ.get(environment.REPLICA) or "unnamed"  # the child reads the same and says what is wrong
    spool = Spool(SPOOL)
    output = Output(spool.append if place else lambda data: None)
    remote = Remote(place) if place else None
    shipper = None
    if remote and place:
        pod = environ.get(environment.POD_NAME) or os.uname().nodename
        shipper = Shipper(spool, remote, folder(place.run, replica, pod), output.say)
    end = Life(list(arguments[1:]), environ, output, gang=gang, remote=remote).run()
    _leave_message(environ, end.message if end.exit_code else "")
    if shipper:
        shipper.close(end.exit_code, SHIP_AFTER_TERM_S if end.exit_code == ExitCode.TERMINATED else SHIP_S)
    return end.exit_code


def _leave_message(environ: Mapping[str, str], message: str) -> None:
    """Leaves the reason where the kubelet looks for it; without the file, or the right to write it, the log has it all the same."""
    if not message:
        return
    try:
        Path(environ.get(environment.TERMINATION_LOG) or TERMINATION_LOG).write_bytes(message.encode()[:MESSAGE_BYTES])
    except OSError:
        pass


def _run() -> NoReturn:
    code = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that wait for S3 must not hold the end up.
    os._exit(code)


if __name__ == "__main__":
    _run()
