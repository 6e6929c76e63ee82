"""What the first process of a node does: starts the node's programs in their order, starts again what ends, reaps every orphan.

It knows nothing of namespaces or Kubernetes. Standard library only: it runs with `-I -S` as process 1 of a node (machine.py), whose end
is the end of all of the node's processes; so nothing is stopped here, one by one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIRST_BACKOFF_S, LAST_BACKOFF_S, STEADY_S = 0.2, 10.0, 60.0
LOOK_S, IDLE_S = 0.1, 5.0
"""Between two looks for the files that a program waits for."""
CHECK_FIRST_S, CHECK_S, CHECK_FAILURES = 20.0, 10.0, 2
"""When a program is first asked whether it does its work, how often then, and how many times it may fail to in a row."""
DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""What is ignored (Python ignores SIGPIPE, a shell's background job more) would be ignored in every container too."""
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


@dataclass(frozen=True)
class Service:
    """One program."""

    name: str
    argv: Sequence[str]
    after: Sequence[str] = ()
    """Files that must be there first."""
    needs: Sequence[str] = ()
    """Names of `once` programs that must have succeeded first."""
    once: bool = False
    """It is to end with 0, and is done then; else it is to run for ever."""
    check: Sequence[str] = ()
    """A program that ends with 0 when this one does its work. When it does not, this one is killed and started again."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Service:
        return cls(**document)


@dataclass
class _Running:
    service: Service
    pid: int | None = None
    done: bool = False
    began: float = 0.0
    backoff: float = FIRST_BACKOFF_S
    start_at: float = 0.0
    starts: int = 0
    code: int | None = None
    """Of its last end."""
    check_pid: int | None = None
    check_at: float = 0.0
    check_failures: int = 0

    def describe(self) -> dict[str, object]:
        state = "done" if self.done else "running" if self.pid else "waiting" if not self.starts else "ended"
        return {"state": state, "restarts": max(0, self.starts - 1), "exit_code": self.code}


@dataclass
class Init:
    """All programs of one node."""

    services: Sequence[Service]
    environment: Mapping[str, str]
    log: Callable[[str], int]
    """Opens the log of a program for appending; the descriptor."""
    report: Callable[[str], None] = lambda text: None
    """Is given the state of all, as JSON, whenever it has changed."""
    _all: dict[str, _Running] = field(default_factory=dict)
    _reported: str = ""

    def run(self) -> int:
        """Until TERM. Returns 0; the caller ends then, and with process 1 everything does."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self._all = {one.name: _Running(one) for one in self.services}
        while True:
            self._start_due()
            self._check_due()
            self._tell()
            idle = all(one.pid or one.done for one in self._all.values())
            got = signal.sigtimedwait(WATCHED, IDLE_S if idle else LOOK_S)
            if got and got.si_signo != signal.SIGCHLD:
                return 0
            self._reap()

    def _start_due(self) -> None:
        now = time.monotonic()
        for one in self._all.values():
            if one.pid or one.done or now < one.start_at:
                continue
            if all(Path(path).exists() for path in one.service.after) and all(self._all[name].done for name in one.service.needs):
                self._start(one)

    def _start(self, one: _Running) -> None:
        one.starts += 1
        one.began = time.monotonic()
        one.check_at, one.check_failures = one.began + CHECK_FIRST_S, 0
        one.pid = self._spawn(one.service.name, one.service.argv)
        if one.pid is None:
            self._ended(one, 127)

    def _check_due(self) -> None:
        now = time.monotonic()
        for one in self._all.values():
            if one.service.check and one.pid and not one.check_pid and now >= one.check_at:
                one.check_at = now + CHECK_S
                one.check_pid = self._spawn(one.service.name, one.service.check)

    def _spawn(self, name: str, argv: Sequence[str]) -> int | None:
        """Starts a program that writes into the log of `name`; its pid, or None where that is impossible: the log says why."""
        out = self.log(name)
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
        more: dict[str, Any] = {"file_actions": actions, "setsid": True, "setsigmask": [], "setsigdef": DEFAULTED}
        try:
            return os.posix_spawnp(argv[0], list(argv), dict(self.environment), **more)
        except OSError as error:
            os.write(out, f"cannot start {argv[0]}: {error}\n".encode())
            return None
        finally:
            os.close(out)

    def _reap(self) -> None:
        """Collects every ended child: programs of ours, and orphans (the containers' shims among them)."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for one in self._all.values():
                if one.pid == pid:
                    self._ended(one, os.waitstatus_to_exitcode(status))
                elif one.check_pid == pid:
                    self._checked(one, os.waitstatus_to_exitcode(status))

    def _checked(self, one: _Running, code: int) -> None:
        one.check_pid = None
        one.check_failures = one.check_failures + 1 if code else 0
        if one.check_failures >= CHECK_FAILURES and one.pid:
            os.kill(one.pid, signal.SIGKILL)

    def _ended(self, one: _Running, code: int) -> None:
        now = time.monotonic()
        one.pid, one.code = None, code
        if one.service.once and code == 0:
            one.done = True
            return
        if now - one.began > STEADY_S:
            one.backoff = FIRST_BACKOFF_S
        one.start_at = now + one.backoff
        one.backoff = min(one.backoff * 2, LAST_BACKOFF_S)

    def _tell(self) -> None:
        text = json.dumps({name: one.describe() for name, one in self._all.items()})
        if text != self._reported:
            self._reported = text
            self.report(text)
