"""Starts components through their shims, restarts the ones that die, and stops them; knows nothing of what they are.

Used from the starter's main thread alone: PR_SET_PDEATHSIG is about the *thread* that forked, so a shim started from another thread
would be killed when that thread ends.
"""

from __future__ import annotations

import datetime
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local.stack import processes, shim
from local.stack.events import StackError

log = logging.getLogger("trainyard.stack")

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.2, 10.0
STEADY_S = 60.0
"""A component that ran this long is taken for sound: its next death is restarted at once."""
LOG_LIMIT = 64 * 1024 * 1024
"""Bytes; a longer log is set aside (one generation) when its component starts."""
GENERATIONS = 4
"""Of orphans buried at one look; what is deeper is found at the next."""


@dataclass(frozen=True)
class Component:
    """One program of the platform."""

    name: str
    program: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]
    grace_s: float = 5.0
    """Seconds between TERM and KILL when it is stopped."""
    ready: Callable[[datetime.datetime], bool] = lambda since: True
    """Asked until it says yes, with the moment (UTC) when the program was started: what a dead one left behind (a heartbeat, a socket's
    file) is no sign of life. Must not block longer than some seconds, must not raise."""
    ready_within_s: float = 60.0


@dataclass
class _Running:
    component: Component
    process: subprocess.Popen[bytes] | None
    began: float
    since: datetime.datetime
    backoff: float = FIRST_BACKOFF_S
    restart_at: float = 0.0
    restarts: int = 0
    was_ready: bool = False
    look_at: float = 0.0


@dataclass
class Supervisor:
    """All components of one starter."""

    run: Path
    logs: Path
    changed: Callable[[], None] = lambda: None
    """Called whenever a component's state changed."""
    _running: dict[str, _Running] = field(default_factory=dict)
    _one_shot: subprocess.Popen[bytes] | None = None
    _log_from: dict[str, int] = field(default_factory=dict)
    """How long each component's log was, in bytes, when it was asked for: what is before that is of an earlier start."""

    def __post_init__(self) -> None:
        shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 1)  # orphans of a killed shim come to us, see _bury_orphans

    # ------------------------------------------------------------------------------------------------------------ state
    def describe(self) -> dict[str, dict[str, object]]:
        """For state.json: name -> pid (the program's own; None while it is not known), shim (its pid), state, restarts."""
        found: dict[str, dict[str, object]] = {}
        recorded = processes.recorded(self.run)
        for name, one in self._running.items():
            if one.process is None:
                state = "backoff"
            else:
                state = "running" if one.was_ready else "starting"
            shim_pid = one.process.pid if one.process else None
            known = recorded.get(name)
            pid = known[1].pid if known and known[0].pid == shim_pid else None
            found[name] = {"pid": pid, "shim": shim_pid, "state": state, "restarts": one.restarts}
        return found

    # ------------------------------------------------------------------------------------------------------------ start
    def start(self, component: Component) -> None:
        """Starts it and goes on; `wait_ready` waits."""
        if component.name in self._running:
            raise RuntimeError(f"{component.name} runs already")
        since = datetime.datetime.now(datetime.UTC)
        self._mark_log(component.name)
        self._running[component.name] = _Running(component, self._spawn(component), time.monotonic(), since)
        self.changed()

    def wait_ready(self, names: Sequence[str], *, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Returns when all are ready. Raises StackError with the end of the log when one is not in its time or keeps dying."""
        waiting = [self._running[name] for name in names]
        began = time.monotonic()
        while waiting:
            self.poll()
            if interrupted():
                raise InterruptedError
            for one in list(waiting):
                name = one.component.name
                if one.process is not None and one.component.ready(one.since):
                    one.was_ready = True
                    waiting.remove(one)
                    self.changed()
                elif one.restarts >= 3:
                    raise StackError(f"{name} keeps ending while it starts. {self.end_of_log(name)}")
                elif time.monotonic() - began > one.component.ready_within_s:
                    raise StackError(f"{name} is not ready after {one.component.ready_within_s:.0f} s. {self.end_of_log(name)}")
            time.sleep(0.1)

    def run_to_end(self, component: Component, *, interrupted: Callable[[], bool] = lambda: False, bound_s: float = 600.0) -> None:
        """Runs a program that ends by itself. Raises StackError with the end of its log when it fails or takes too long."""
        self._mark_log(component.name)
        process = self._one_shot = self._spawn(component)
        began = time.monotonic()
        try:
            while process.poll() is None:
                self.poll()
                if interrupted():
                    raise InterruptedError
                if time.monotonic() - began > bound_s:
                    raise StackError(f"{component.name} has not ended after {bound_s:.0f} s. {self.end_of_log(component.name)}")
                time.sleep(0.05)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            self._one_shot = None
        if process.returncode != 0:
            raise StackError(f"{component.name} failed (exit code {process.returncode}). {self.end_of_log(component.name)}")

    def _spawn(self, component: Component) -> subprocess.Popen[bytes]:
        path = self.log_path(component.name)
        self._set_aside(component.name)
        command = [
            sys.executable,
            "-I",
            "-S",
            shim.__file__,
            "--name",
            component.name,
            "--record",
            str(self.run / f"{component.name}.process.json"),
        ]
        command += ["--log", str(path), "--grace", str(component.grace_s), "--parent", str(os.getpid()), "--", *component.program]
        # A session of its own: Ctrl-C in the terminal is for the starter, which then stops components in order.
        with open(path, "ab") as out:
            return subprocess.Popen(
                command,
                cwd=component.cwd,
                env=dict(component.environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    # -------------------------------------------------------------------------------------------------------- supervise
    def poll(self) -> None:
        """Notices deaths, restarts with back-off. To be called several times a second."""
        now = time.monotonic()
        for name, one in self._running.items():
            if one.process is not None and one.process.poll() is not None:
                code = one.process.returncode
                if now - one.began > STEADY_S:
                    one.backoff = FIRST_BACKOFF_S
                log.warning("%s ended with %s after %.0f s; it is started again in %.1f s", name, code, now - one.began, one.backoff)
                one.process, one.restart_at, one.was_ready = None, now + one.backoff, False
                one.backoff = min(one.backoff * 2, LAST_BACKOFF_S)
                self._bury_orphans()
                self.changed()
            elif one.process is None and now >= one.restart_at:
                one.restarts += 1
                one.since = datetime.datetime.now(datetime.UTC)
                one.process, one.began = self._spawn(one.component), now
                self.changed()
            elif one.process is not None and not one.was_ready and one.restarts and now >= one.look_at:
                # After a restart nobody waits for it: look once a second.
                one.was_ready, one.look_at = one.component.ready(one.since), now + 1.0
                if one.was_ready:
                    log.info("%s is ready again", name)
                    self.changed()

    def _bury_orphans(self) -> None:
        """Kills and reaps what a SIGKILLed shim left: any child of ours that is no shim of ours."""
        ours = {one.process.pid for one in self._running.values() if one.process is not None}
        if self._one_shot is not None:
            ours.add(self._one_shot.pid)
        # Whose parent was just reaped becomes our child only then: one more look a generation.
        for _ in range(GENERATIONS):
            strangers = [pid for pid in children_of(os.getpid()) if pid not in ours]
            if not strangers:
                return
            for pid in strangers:
                tree = [pid, *shim.descendants(pid)]
                log.warning("killing what a dead shim left: %s", ", ".join(f"{one} ({processes.command_of(one)})" for one in tree))
                processes.kill(tree)
                try:
                    os.waitpid(pid, 0)
                except ChildProcessError:
                    pass

    # ------------------------------------------------------------------------------------------------------------- stop
    def stop(self, names: Sequence[str]) -> None:
        """Stops these together and returns when their last process is gone (grace of the slowest, then KILL)."""
        chosen = [self._running.pop(name) for name in names if name in self._running]
        for one in chosen:
            if one.process is not None:
                one.process.send_signal(signal.SIGTERM)
        for one in chosen:
            if one.process is None:
                continue
            try:
                one.process.wait(one.component.grace_s + shim.KILL_BOUND_S + 2)
            except subprocess.TimeoutExpired:
                log.error("the shim of %s does not end: killing it and its tree", one.component.name)
                processes.kill([*shim.descendants(one.process.pid), one.process.pid])
                one.process.wait()
        self._bury_orphans()
        self.changed()

    def component(self, name: str) -> Component | None:
        return self._running[name].component if name in self._running else None

    def names(self) -> list[str]:
        return list(self._running)

    # -------------------------------------------------------------------------------------------------------------- log
    def log_path(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _set_aside(self, name: str) -> None:
        path = self.log_path(name)
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
            self._log_from[name] = 0

    def _mark_log(self, name: str) -> None:
        self._set_aside(name)
        path = self.log_path(name)
        self._log_from[name] = path.stat().st_size if path.exists() else 0

    def end_of_log(self, name: str, lines: int = 3) -> str:
        """Where the log is and its last lines that say something, on one line; none from before the component was asked for."""
        path = self.log_path(name)
        try:
            with open(path, "rb") as file:
                file.seek(max(self._log_from.get(name, 0), path.stat().st_size - 4096))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return f"Log: {path}"
        kept = [line.strip() for line in text.splitlines() if line.strip(" ^~\t")][-lines:]  # not a traceback's underlining
        return f"Log: {path}" + (f"; its end: {' | '.join(line[:300] for line in kept)}" if kept else "")


def children_of(pid: int) -> list[int]:
    """Direct children, zombies included."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if int(shim.stat_fields(int(entry))[1]) == pid:
                    found.append(int(entry))
            except (OSError, ValueError):
                continue
    return found
