"""Starts the local programs (``local/``) for a command and shows what they say: they are another side, never imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from trainyard.cli import places
from trainyard.cli.invoking import print_error
from trainyard.cli.output import Output, seconds
from trainyard.errors import RefusedError


def run(module: str, arguments: Sequence[str], out: Output, what: str) -> int:
    """Runs ``python -m MODULE COMMAND …`` of the checkout and shows its events; its errors go to stderr.

    Args:
        module: as ``local.stack``; it takes ``--json`` and then prints events as local/stack/events.py has them.
        arguments: the command first.
        what: what needs the checkout, for the message where there is none.

    Returns:
        The program's exit code.
    """
    root = places.need_checkout(what)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))}
    # -P: a folder `local` where the person happens to be is not ours.
    command = [sys.executable, "-P", "-m", module, arguments[0], "--json", *arguments[1:]]
    shown: set[str] = set()
    moving = sys.stdout.isatty() and not out.as_json
    with tempfile.TemporaryFile("w+") as remarks:
        program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=remarks, text=True)
        assert program.stdout is not None
        try:
            for line in program.stdout:
                if out.as_json:
                    print(line, end="", flush=True)
                else:
                    _show_event(line, out, moving)
                shown |= _show_error(line)
            return program.wait()
        except KeyboardInterrupt:
            program.wait()  # the terminal has interrupted it too: it takes down what it had begun
            raise
        finally:
            remarks.seek(0)
            for line in remarks.read().splitlines():
                if line not in shown:  # an error is both an event and a line
                    shown.add(line)
                    print_error(RefusedError(line))


def _show_error(line: str) -> set[str]:
    """On stderr, as the command's own errors are; the lines that it showed, none where the line is another event."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return set()
    if event.get("event") != "error":
        return set()
    print_error(RefusedError(event["message"]))
    return set(str(event["message"]).splitlines())


def _show_event(line: str, out: Output, moving: bool) -> None:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        out.line(line.rstrip())
        return
    text = ""
    match event.get("event"):
        case "phase" if event["state"] == "start":
            text = f"  … {event['name']} {event.get('detail') or ''}"
        case "phase":
            if moving:
                sys.stdout.write("\r\x1b[2K")
            out.line(f"  {'✓' if event['state'] == 'done' else '✗'} {event['name']}  {seconds(event['seconds'])}")
        case "progress":
            text = f"  … {event['name']} {event['done']}/{event['total']} {event.get('detail') or ''}"
        case "note":
            out.remark(event["message"])
    if text and moving:
        sys.stdout.write("\r\x1b[2K" + text[: max(20, out.console.width - 1)])
        sys.stdout.flush()
    elif text and event["event"] == "phase":
        out.line(text.rstrip())
