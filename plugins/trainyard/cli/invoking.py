"""What every command does around its work: options that all share, the client, and errors as one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from trainyard.cli import session as sessions
from trainyard.cli.client import Client
from trainyard.cli.exits import Exit, exit_code
from trainyard.errors import ConfigError, TrainyardError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one event a line.")]


class App(typer.Typer):
    """A typer application that ends with one clear line and the exit code of the error, never with a traceback of its own errors."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except TrainyardError as e:
            print_error(e)
            sys.exit(exit_code(e))
        except KeyboardInterrupt:
            sys.exit(Exit.INTERRUPTED)
        except BrokenPipeError:
            # The reader (`| head`) has gone: nothing can be said to it, and that is no failure of ours.
            sys.stderr.close()
            sys.exit(Exit.OK)
        except OSError as e:
            # What the machine refuses (a folder that cannot be written, a full disk) is the person's to mend.
            what = f"{e.filename}: " if e.filename else ""
            print_error(ConfigError(f"{what}{e.strerror or e}: name another place, or make this one writable and with room"))
            sys.exit(Exit.BAD_INPUT)


def print_error(error: BaseException) -> None:
    """The error on stderr: one line a problem."""
    for line in str(error).splitlines() or [type(error).__name__]:
        print(f"trainyard: {line}", file=sys.stderr)


@contextmanager
def connected() -> Iterator[Client]:
    """A client that speaks for the person who is logged in."""
    with Client(sessions.load()) as client:
        yield client
