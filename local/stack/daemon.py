"""The one process that owns all others of a platform or cluster: brings them up, watches over them, takes them down; how it is started.

What is brought up, and in which order, is the subclass's. However a daemon dies, its shims take every component with them.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from local.stack import processes
from local.stack.control import ControlServer
from local.stack.events import Reporter, StackError
from local.stack.state import StarterLock, State
from local.stack.supervisor import Supervisor

log = logging.getLogger("trainyard.daemon")

POLL_S = 0.2


class Stopped(Exception):
    """TERM, INT, or whoever asked for the start is gone: not an error, but the end."""


class Folder(Protocol):
    """What a daemon needs of its state folder."""

    @property
    def root(self) -> Path:
        """The folder."""

    @property
    def run(self) -> Path:
        """Locks, the control socket, and who runs."""

    @property
    def logs(self) -> Path:
        """A file for each part."""

    def read(self) -> dict[str, Any]:
        """state.json; {} where there is none."""

    def starter_pid(self) -> int | None:
        """Whoever has the folder."""


class Daemon(ABC):
    """A subclass has these, and says what is brought up and taken down."""

    reporter: Reporter
    supervisor: Supervisor
    phase: str
    _stop: bool = False

    @property
    @abstractmethod
    def folder(self) -> Folder:
        """Its state folder."""

    @abstractmethod
    def _bring_up(self) -> None:
        """Everything, in order. Raises StackError; InterruptedError where `_stopping` said so."""

    @abstractmethod
    def _take_down(self) -> None:
        """Everything that may have been brought up."""

    @abstractmethod
    def _write_state(self) -> None:
        """state.json, as things are now."""

    @abstractmethod
    def _carry_out(self, request: Mapping[str, Any]) -> None:
        """What somebody asked over the control socket. Raises StackError: theirs to read."""

    def _explain(self, error: Exception) -> str:
        """One line with the way out."""
        return str(error)

    def run(self) -> int:
        """Up, watch, down. Returns the exit code; the folder's lock is held by the caller."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        os.chdir(self.folder.run)
        control = ControlServer()
        code = 0
        try:
            self._bring_up()
            self.phase = "up"
            self._write_state()
            self._announce()
            self._watch(control)
        except (Stopped, InterruptedError, BrokenPipeError):
            log.info("stopping")
        except (StackError, OSError) as error:
            log.error("%s", error)
            self._say_error(self._explain(error))
            code = 1
        except Exception:  # a fault of ours: the log has it, the person gets one line
            log.exception("unexpected")
            self._say_error(f"unexpected fault: see {self.folder.logs / 'starter.log'}")
            code = 1
        finally:
            self._take_down()
        return code

    def _on_signal(self, *_: Any) -> None:
        self._stop = True

    def _stopping(self) -> bool:
        """Asked to end, or whoever wanted the start is gone before it was done."""
        return self._stop or self.reporter.reader_gone()

    def _say_error(self, message: str) -> None:
        try:
            self.reporter.emit("error", message=message)
        except OSError:
            pass  # nobody listens any more; the log has it

    def _announce(self) -> None:
        """Tells whoever started us; from here on nobody has to listen."""
        try:
            self.reporter.emit("up", **self.folder.read())
        finally:
            self.reporter = Reporter(io.StringIO())

    def _watch(self, control: ControlServer) -> None:
        while not self._stop:
            self.supervisor.poll()
            asked = control.request()
            if asked:
                self._answer(*asked)
            time.sleep(POLL_S)
        raise Stopped

    def _answer(self, request: dict[str, Any], connection: socket.socket) -> None:
        """Carries out one request; an error is the asker's to read, and everything goes on."""
        before = self.reporter
        with connection, connection.makefile("w", encoding="utf-8") as lines:
            self.reporter = Reporter(lines, as_json=True)
            try:
                self._carry_out(request)
                self.reporter.emit("done")
            except BrokenPipeError:
                log.warning("whoever asked for %s has gone; it was carried on", request)
            except (StackError, OSError) as error:
                log.error("%s", error)
                self._say_error(str(error))
            finally:
                self.reporter = before


# -------------------------------------------------------------------------------------------------------- how it is started
def hold(state: State) -> StarterLock | None:
    """Takes the folder's starter lock and says in starter.json who we are; None when another has it."""
    lock = StarterLock(state)
    if not lock.acquire():
        return None
    me = processes.Identity.of(os.getpid())
    (state.run / "starter.json").write_text(json.dumps({"pid": me.pid, "started": me.started}), encoding="utf-8")
    return lock


def busy(folder: Folder, what: str, way_out: str, reporter: Reporter) -> int:
    """Another daemon has the folder of `what`: says what it is doing. 0 where that is up, 3 else."""
    value = folder.read()
    if value.get("phase") == "up":
        reporter.note(f"the {what} is already up in {folder.root}")
        reporter.emit("up", **value)
        return 0
    doing = "being stopped" if value.get("phase") == "stopping" else "being started"
    message = f"the {what} in {folder.root} is {doing} by pid {folder.starter_pid()}: {way_out}"
    tell_error(message, as_json=reporter.as_json)
    return 3


def tell_error(message: str, *, as_json: bool) -> None:
    """One line on stderr, and an event for a program."""
    if as_json:
        Reporter(sys.stdout, as_json=True).emit("error", message=message)
    print(message, file=sys.stderr)


def launch(
    command: Sequence[str], folder: Folder, environment: Mapping[str, str], reporter: Reporter, how_to_use: Callable[[dict[str, Any]], str]
) -> int:
    """Starts the daemon and shows its progress until it is up; when this program is interrupted before, so is the start.

    Returns the exit code: 0 when it is up.
    """
    starter_log = folder.logs / "starter.log"
    starter_log.touch(mode=0o600)
    with open(starter_log, "ab") as errors:
        daemon = subprocess.Popen(
            command,
            cwd=folder.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
        )

    def interrupt(*_: Any) -> None:
        daemon.terminate()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    assert daemon.stdout is not None
    failed: str | None = None
    for line in daemon.stdout:
        event = json.loads(line)
        name = event.pop("event")
        if name == "error":
            failed = failed or event["message"]
        if name != "error" or reporter.as_json:
            reporter.emit(name, **event)
        if name == "up":
            if not reporter.as_json:
                print(how_to_use(event))
            return 0
    code = daemon.wait()
    if failed is None:
        failed = "interrupted: nothing is left running" if code == 0 else f"the starter ended with {code}: see {starter_log}"
    print(failed, file=sys.stderr)
    return code or 130


def end(starter: processes.Identity, within_s: float, reporter: Reporter) -> None:
    """Ends a daemon, which ends the rest; one that does not end within `within_s` seconds is killed."""
    processes.kill([starter.pid], signal.SIGTERM)
    deadline = time.monotonic() + within_s
    while starter.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    if starter.alive():
        reporter.note(f"the starter (pid {starter.pid}) does not end: killing it")
        processes.kill([starter.pid])
