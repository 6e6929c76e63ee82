"""Runs one component so that none of its processes can outlive the starter: neither by a SIGKILL of anyone nor by renaming itself.

    python -I -S shim.py --name NAME --record FILE --log FILE --grace SECONDS --parent PID -- PROGRAM [ARG…]

It is a child subreaper: whatever the program starts, in whatever session or group, stays a descendant of the shim, even after its own
parents are gone; so "all of it" can be found by descent, with no regard to names or environments (Airflow's children overwrite both).
- TERM or INT: the program gets TERM, and after the grace period everything that is left gets KILL.
- the starter dies, in any way (PR_SET_PDEATHSIG): everything gets KILL at once.
- the program ends: what it left behind gets KILL; the shim ends with its exit code (128 + n for a signal).
- the shim itself is SIGKILLed: the kernel KILLs the program (PR_SET_PDEATHSIG) and hands its orphans to the starter, which kills them
  (supervisor.py); were both killed at once, the next start finds them by the session recorded in FILE (processes.py).

Standard library only and started with `-I -S`: ten of these run beside a platform, each must be small (≈ 9 MB).
It is no init system: it knows one program and never restarts it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
PARENT_DIED = signal.SIGHUP
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, PARENT_DIED}
KILL_BOUND_S = 10.0  # a process in uninterruptible sleep cannot be killed: say so and go, rather than wait for ever


def prctl(option: int, value: int) -> None:
    """prctl(2); raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (state, ppid, pgrp, session, …, start time is index 19)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read().decode("utf-8", "replace")
    return text[text.rindex(")") + 2 :].split()  # the name in parentheses may itself hold spaces and parentheses


def descendants(root: int) -> list[int]:
    """Every living descendant of `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = stat_fields(int(entry))
        except (OSError, ValueError):
            continue  # ended while we looked
        children.setdefault(int(fields[1]), []).append(int(entry) if fields[0] != "Z" else -int(entry))
    found: list[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            queue.append(abs(pid))
            if pid > 0:
                found.append(pid)
    return found


def reap(main: int) -> tuple[int | None, bool]:
    """Collects every ended child: the exit code of `main` once it is among them, and whether a child is left."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if pid == 0:
            return code, True
        if pid == main:
            value = os.waitstatus_to_exitcode(status)
            code = value if value >= 0 else 128 - value


def kill_all(main: int) -> int | None:
    """SIGKILLs every descendant until none is left, zombies included; the exit code of `main` if it ended meanwhile."""
    code: int | None = None
    deadline = time.monotonic() + KILL_BOUND_S
    while time.monotonic() < deadline:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        ended, left = reap(main)
        code = ended if ended is not None else code
        if not left:
            return code
        time.sleep(0.02)
    print(f"shim: cannot kill {descendants(os.getpid())}", file=sys.stderr, flush=True)
    return code


def start(program: list[str], log: str) -> int:
    """Forks the program into a session of its own, its output appended to `log`; returns its pid."""
    shim = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:  # the shim died between fork and prctl
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)  # a parent under nohup ignores INT and HUP, and that is inherited
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        if log != "-":
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(program[0], program)
    except BaseException as error:
        os.write(2, f"cannot start {program[0]}: {error}\n".encode())
    os._exit(127)


def record(path: str, name: str, main: int) -> None:
    """Writes who runs, for the next start to find: {"name", "shim": [pid, start], "main": [pid, start]} (start in clock ticks)."""
    identity = {"name": name}
    for key, pid in (("shim", os.getpid()), ("main", main)):
        identity[key] = [pid, int(stat_fields(pid)[19])]  # type: ignore[assignment]
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(identity, file)
    os.replace(temporary, path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--grace", type=float, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    program = options.program[1:] if options.program[:1] == ["--"] else options.program

    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    prctl(PR_SET_PDEATHSIG, PARENT_DIED)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != options.parent:
        return 1
    pid = start(program, options.log)
    try:
        record(options.record, options.name, pid)
    except OSError as error:  # unrecorded means unfindable: rather not run at all
        print(f"shim: {error}", file=sys.stderr, flush=True)
        kill_all(pid)
        return 1

    deadline: float | None = None
    code: int | None = None
    while code is None:
        wait = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
        got = signal.sigtimedwait(WATCHED, wait)
        code, _ = reap(pid)
        if code is not None:
            break
        number = got.si_signo if got else None
        if number == PARENT_DIED or (deadline is not None and time.monotonic() >= deadline):
            code = kill_all(pid)
            break
        if number in (signal.SIGTERM, signal.SIGINT) and deadline is None:
            deadline = time.monotonic() + options.grace
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
    kill_all(pid)
    try:
        os.unlink(options.record)
    except OSError:
        pass
    return 137 if code is None else code


if __name__ == "__main__":
    sys.exit(main())
