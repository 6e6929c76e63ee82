"""One replica of a gang: its role comes from the environment. It ends its process itself.

TensorFlow's threads do not let an interpreter go: after a lost peer its shutdown can hang for ever, and after a good end it logs errors
about peers that have left. So whatever the outcome, streams are flushed and the process ends here.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from typing import NoReturn

from trainer import environment
from trainer.engine import plan as plans
from trainer.environment import CHIEF, WORKER, Gang
from trainer.errors import TrainerError, UserError
from trainer.exit_codes import ExitCode
from trainer.steps.context import Context, open_context


def main() -> NoReturn:
    """Runs this replica and ends the process with a code of ``trainer.exit_codes``."""
    # TensorFlow's C++ side logs the loss of a peer in pages, at its highest level; what matters comes as an exception.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # A crash inside TensorFlow's C++ side says where it was.
    faulthandler.enable()
    try:
        _run()
        code = int(ExitCode.OK)
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        code = int(error.exit_code)
    except BaseException:  # a bug of ours, or the user's that got through: said with its traceback, a retry may help
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run() -> None:
    gang = environment.gang()
    if gang is None:
        raise UserError(f"environment variable {environment.ROLE} is not set: a replica is told its place in the gang there")
    context = open_context()
    if gang.role == CHIEF:
        from trainer.engine import chief

        chief.run(context, gang, environment.threads(), _say)
    else:
        _serve(context, gang)


def _serve(context: Context, gang: Gang) -> None:
    from trainer.engine import server

    fetched = _Fetch(context, gang.index) if gang.role == WORKER else None
    server.import_tensorflow()
    if fetched:
        fetched.join_or_raise()
    server.serve(gang, environment.threads(), context.spec.training.start_deadline_s, _say)


class _Fetch(threading.Thread):
    """A worker's shards come while TensorFlow is imported."""

    def __init__(self, context: Context, worker: int) -> None:
        super().__init__(name="fetch", daemon=True)
        self._context, self._worker = context, worker
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            plan = plans.load(self._context)
            plans.fetch(self._context.data, plan.share(self._worker), plan.widest, _say)
        except BaseException as error:
            self._error = error

    def join_or_raise(self) -> None:
        self.join()
        if self._error:
            raise self._error


def _say(line: str) -> None:
    print(line, flush=True)
