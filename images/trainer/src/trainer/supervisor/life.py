"""The supervisor's main thread: start the child, wait for it, pass signals on, start it again or end.

::

    child ends ──> by TERM ───────────────────────────────────────────> 143
               ──> by a watcher's verdict ──────────> tell the gang ──> the verdict's code
               ──> by itself ──> worth a restart ──> wait ──> child
                             ──> else ──────────────> tell the gang ──> its code
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from trainer.environment import CHIEF, SUPERVISOR_PID, Gang
from trainer.exit_codes import ExitCode, describe
from trainer.supervisor import gang_watch, processes
from trainer.supervisor.output import Output
from trainer.supervisor.remote import Remote
from trainer.supervisor.restarts import Restarts
from trainer.supervisor.watchers import Verdict, Watcher

TERM_GRACE_S: Final = 5.0
"""From a TERM to the child's KILL; with ``shipping`` after it, it stays below a pod's ten seconds."""
VERDICT_GRACE_S: Final = 1.0
"""The same when the gang has ended: nothing that the child could still do matters."""
LAST_LOOK_S: Final = 5.0
"""How long S3 is asked for the gang's end before a PS or worker believes that its chief has only gone for a while."""
_NOT_FOUND: Final = 127


@dataclass(frozen=True)
class End:
    """How the container ends."""

    exit_code: int
    message: str


class Life:
    """One container's life."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        output: Output,
        *,
        gang: Gang | None = None,
        remote: Remote | None = None,
        restarts: Restarts | None = None,
        term_grace_s: float = TERM_GRACE_S,
    ) -> None:
        self._command = command
        self._environ = {**environ, SUPERVISOR_PID: str(os.getpid())}
        self._output = output
        self._gang, self._remote = gang, remote
        self._restarts = restarts or Restarts(gang.role if gang else None)
        self._term_grace_s = term_grace_s
        self._terminated: float | None = None
        self._watchers: list[Watcher] = []
        self._waker, self._wakened = socket.socketpair()
        for end in (self._waker, self._wakened):
            end.setblocking(False)

    # ------------------------------------------------------------------------------------------------------------ the whole

    def run(self) -> End:
        """Lives until the child has ended for good; nothing below this process is left then, and all its output is read."""
        self._take_signals()
        processes.adopt_orphans()
        if self._gang and self._remote:
            self._watch(gang_watch.GangWatch(self._remote, self._gang))
        exit_code, verdict = self._children()
        for watcher in self._watchers:
            watcher.stop()
        self._output.close(deadline_s=5)
        message = verdict.message if verdict else self._last_words(exit_code)
        if self._gang and self._remote and not (self._terminated and exit_code):
            exit_code, message = self._tell(self._gang, self._remote, exit_code, message)
        return End(exit_code, message)

    def _children(self) -> tuple[int, Verdict | None]:
        """Child after child; gives the last one's exit code and the verdict that ended it, if one did."""
        while True:
            if self._terminated:
                return ExitCode.TERMINATED, None
            if verdict := self._verdict():
                self._output.say(verdict.message)
                return verdict.exit_code, verdict
            self._output.child_begins()
            try:
                child = processes.Child(self._command, self._output.writer, self._environ)
            except OSError as error:
                self._output.say(f"{self._command[0]} cannot be started: {error}")
                return _NOT_FOUND, Verdict(_NOT_FOUND, f"{self._command[0]} cannot be started: {error}")
            for watcher in self._watchers:
                watcher.child_began(child.pid)
            code = self._wait(child)
            child.signal(signal.SIGKILL)  # what it left of its own group
            if left := processes.kill_descendants():
                self._output.say(f"killed {len(left)} processes that the command left behind: {', '.join(map(str, left))}")
            done = self._judge(child, code)
            if done is not None:
                return done

    def _last_words(self, exit_code: int) -> str:
        """Why the last child ended badly, in its own words where it had some; nothing after a good end."""
        return (self._output.message() or f"ended with {exit_code} ({describe(exit_code)}) and wrote nothing") if exit_code else ""

    def _judge(self, child: processes.Child, code: int) -> tuple[int, Verdict | None] | None:
        """What the end of a child means; None when it is to be started again."""
        good_chief = code == ExitCode.OK and self._gang is not None and self._gang.role == CHIEF and self._result_is_there()
        if self._terminated and not good_chief:
            return ExitCode.TERMINATED, None
        # A chief that reached its end is done, whatever was seen of others meanwhile.
        if not good_chief and code == ExitCode.CHIEF_GONE:
            self._look_now()
        if not good_chief and (verdict := self._verdict()):
            self._output.say(verdict.message)
            return verdict.exit_code, verdict
        if code == ExitCode.OK and self._gang is not None and self._gang.role == CHIEF and not good_chief:
            return 1, Verdict(1, f"the chief ended without {gang_watch.RESULT}: nothing says what it trained")
        wait = self._restarts.wait_before_next(code, child.started)
        if wait is None:
            return code, None
        self._output.say(f"the command ended with {code} ({describe(code)}); starting it again in {wait:.0f} s ({self._restarts.of()})")
        self._pause(wait)
        if code == ExitCode.CHIEF_GONE and self._gang is not None:
            self._watch(gang_watch.ChiefReturn(self._gang.chief_address))
        return None

    # ------------------------------------------------------------------------------------------------------------ waiting

    def _wait(self, child: processes.Child) -> int:
        """Waits for the child, ending it when a TERM or a verdict comes; gives its exit code."""
        kill_at: float | None = None
        while True:
            ended = processes.reap()
            if child.pid in ended:
                child.reaped(ended[child.pid])
                return ended[child.pid]
            if kill_at is None and (self._terminated or self._verdict()):
                child.signal(signal.SIGTERM)
                kill_at = time.monotonic() + (self._term_grace_s if self._terminated else VERDICT_GRACE_S)
            if kill_at is not None and time.monotonic() >= kill_at:
                child.signal(signal.SIGKILL)
                kill_at = time.monotonic() + 1
            self._sleep(1.0 if kill_at is None else max(0.0, kill_at - time.monotonic()))

    def _pause(self, seconds: float) -> bool:
        """Waits, reaping; says whether a TERM or a verdict cut it short."""
        until = time.monotonic() + seconds
        while not (self._terminated or self._verdict()):
            if (left := until - time.monotonic()) <= 0:
                return False
            self._sleep(left)
            processes.reap()
        return True

    def _sleep(self, seconds: float) -> None:
        """Until a signal or a verdict comes, at most so long."""
        if select.select([self._wakened], [], [], seconds)[0]:
            try:
                while self._wakened.recv(4096):
                    pass
            except BlockingIOError:
                pass

    def _take_signals(self) -> None:
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_term)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._terminated = self._terminated or time.monotonic()

    # ------------------------------------------------------------------------------------------------------------ the gang

    def _watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)
        watcher.start(self._wake)

    def _wake(self) -> None:
        try:
            self._waker.send(b"!")
        except BlockingIOError:
            pass  # it is full: the main thread wakes anyway

    def _verdict(self) -> Verdict | None:
        return next((watcher.verdict for watcher in self._watchers if watcher.verdict), None)

    def _look_now(self) -> None:
        """Has the watchers look once more: a chief that has gone may have left its result a moment ago."""
        # A look that is under way may have begun before that: the one after it counts.
        wanted = [(watcher, watcher.looks + 2) for watcher in self._watchers]
        until = time.monotonic() + LAST_LOOK_S
        while any(watcher.looks < looks for watcher, looks in wanted) and not self._verdict() and time.monotonic() < until:
            for watcher in self._watchers:
                watcher.hurry()
            if self._pause(0.1):
                return

    def _result_is_there(self) -> bool:
        return gang_watch.chief_values(Path()) is not None

    def _tell(self, gang: Gang, remote: Remote, exit_code: int, message: str) -> tuple[int, str]:
        def pause(seconds: float) -> bool:
            self._sleep(seconds)
            return self._terminated is not None

        try:
            told = gang_watch.publish(remote, gang, exit_code, message, pause)
        except gang_watch.PublishError as error:
            self._output.say(str(error))
            return (ExitCode.STORAGE_ERROR, str(error)) if gang.role == CHIEF else (exit_code, message)
        if told != exit_code:
            text = f"the generation's end is {told} ({describe(told)}), not {exit_code} ({describe(exit_code)})"
            self._output.say(text)
            return told, text
        return exit_code, message


__all__ = ["End", "Life"]
