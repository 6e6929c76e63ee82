"""The live view of a run for people: a line for each step that ends, one moving line for the present, a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from trainyard.cli.output import Output, seconds


def show(events: Iterable[dict[str, Any]], out: Output) -> dict[str, Any]:
    """Shows the events as they come, JSON lines or a live view; returns the last one (``end``)."""
    last: dict[str, Any] = {}
    if out.as_json:
        for last in events:
            out.document(last)
        return last
    moving = _MovingLine(out)
    try:
        for last in events:
            _show_one(last, out, moving)
    finally:
        moving.clear()
    return last


def _show_one(event: dict[str, Any], out: Output, moving: _MovingLine) -> None:
    match event["event"]:
        case "run":
            moving.clear()
            out.line(f"run {event['run']}  ({event['dag_id']} / {event['run_id']})")
        case "step" if event["state"] in ("success", "failed", "upstream_failed", "skipped"):
            moving.clear()
            mark = {"success": "✓", "skipped": "·"}.get(event["state"], "✗")
            again = f", try {event['try']}" if event["try"] > 1 else ""
            word = "" if event["state"] == "success" else f"  {event['state'].replace('_', ' ')}"
            out.line(f"  {mark} {event['step']:<10} {seconds(event['seconds']):>10}{word}{again}")
        case "step":
            parts = f" {event['done']}/{event['parts']}" if event["parts"] > 1 else ""
            moving.set(f"  … {event['step']}{parts} {event['state'].replace('_', ' ')}")
        case "progress":
            moving.set(f"  … train  {progress(event)}")
        case "note":
            moving.clear()
            out.remark(event["text"])


def progress(event: dict[str, Any]) -> str:
    """Where training stands, on one line."""
    total = event.get("total_steps")
    text = f"step {event['step']}" + (f"/{total} ({100 * event['step'] // total} %)" if total else "")
    if (epoch := event.get("epoch")) is not None:
        text += f"  epoch {epoch:.1f}"
    if (loss := event.get("loss")) is not None:
        text += f"  loss {loss:.4f}"
    if (speed := event.get("examples_per_second")) is not None:
        text += f"  {speed:,.0f} examples/s"
    return text


class _MovingLine:
    """One line that is written over, on a terminal; elsewhere it is printed when it changes."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._live = sys.stdout.isatty()
        self._shown = ""

    def set(self, text: str) -> None:
        if text == self._shown:
            return
        if self._live:
            width = max(20, self._out.console.width - 1)
            sys.stdout.write("\r\x1b[2K" + text[:width])
            sys.stdout.flush()
        else:
            self._out.line(text)
        self._shown = text

    def clear(self) -> None:
        if self._live and self._shown:
            sys.stdout.write("\r\x1b[2K")
            sys.stdout.flush()
        self._shown = ""
