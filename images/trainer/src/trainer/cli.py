"""The trainer's command line: what a container's supervisor starts.

``step NAME [--index I]`` runs one step, ``replica`` this process' role in the gang (both told by the environment), ``local`` trains in
this one process for finding one's own bugs. Each is imported only when asked for. An error of ours is one line on stderr, prefixed
``error:``, and its exit code; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from trainer import environment
from trainer.errors import TrainerError
from trainer.exit_codes import ExitCode

STEPS: Final = ("prepare", "shard", "plan", "evaluate", "gate", "export")
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and gives the exit code of the table in ``exit_codes``."""
    options, rest = _parse(arguments)
    # Lines must reach the log when they are printed: a pipe would hold them back in blocks, and a SIGKILL would lose them.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _die_with_supervisor()
    try:
        if options.command == "step":
            return _step(options.name, options.index)
        if options.command == "replica":
            return int(importlib.import_module("trainer.engine.replica").main() or 0)
        return int(importlib.import_module("trainer.local").main(rest) or 0)
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return int(error.exit_code)


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="trainer", description=__doc__.split("\n\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    step = commands.add_parser("step", help="one step of the run that the environment names")
    step.add_argument("name", choices=STEPS)
    step.add_argument("--index", type=int, default=None, help="which of the step's pods this is (shard)")
    commands.add_parser("replica", help="this replica of the gang that the environment names")
    # Its options are its own: they are passed on unread.
    commands.add_parser("local", add_help=False, help="train in this one process")
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "local":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "step" and (options.name == "shard") != (options.index is not None):
        parser.error("step shard needs --index" if options.name == "shard" else f"step {options.name} takes no --index")
    return options, rest


def _step(name: str, index: int | None) -> int:
    from trainer.steps.context import open_context

    # TensorFlow's C++ side greets with pages on the machine's abilities; what matters comes as an exception.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    module = importlib.import_module(f"trainer.steps.{name}")
    context = open_context()
    if index is None:
        module.run(context)
    else:
        module.run(context, index)
    return ExitCode.OK


def _die_with_supervisor() -> None:
    """Has the kernel kill this process when its supervisor is gone: nobody would ship its log or end it."""
    pid = os.environ.get(environment.SUPERVISOR_PID)
    if not pid:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(pid):  # it died before the call above
        os._exit(ExitCode.KILLED)


if __name__ == "__main__":
    sys.exit(main())
