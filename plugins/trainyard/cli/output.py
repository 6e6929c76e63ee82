"""What the command prints: results on stdout, remarks on stderr; tables for people, JSON for programs.

With ``--json`` stdout holds JSON only, one document or one event a line, and remarks still go to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Wrong(str):
    """A value that people must not overlook: red in a table and on a line of its own."""


class Output:
    """Where a command's words go."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            # Where no one looks (a pipe, a file) there is no width to fold a table to: one row stays one line.
            self._console = Console(soft_wrap=True, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 10_000)
        return self._console

    def document(self, document: Any) -> None:
        """One JSON document on one line; nothing where people read."""
        if self.as_json:
            print(json.dumps(document, default=str), flush=True)

    def line(self, text: str) -> None:
        """A line of the result, for people."""
        if not self.as_json:
            self.console.print(text, markup=False, style="bold red" if isinstance(text, Wrong) else None)

    def remark(self, text: str) -> None:
        """What is worth knowing and is not the result."""
        print(text, file=sys.stderr, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
        """A table, for people; columns of numbers stand to the right."""
        if self.as_json:
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", show_header=any(columns))
        for index, column in enumerate(columns):
            numbers = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
            table.add_column(column, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(
                *(Text(cell(value), style="bold red" if isinstance(value, Wrong) else _STYLES.get(str(value), "")) for value in row)
            )
        self.console.print(table)


_STYLES = {
    "success": "green",
    "exported": "green",
    "failed": "red",
    "running": "cyan",
    "rejected": "yellow",
    "cancelled": "yellow",
    "upstream_failed": "red",
}


def _style(value: Any) -> str:
    return "bold red" if isinstance(value, Wrong) else _STYLES.get(str(value), "")


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def seconds(value: float | None) -> str:
    """A duration as people read it: ``4.2 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float | None) -> str:
    """A number of bytes as people read it."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def moment(text: str | None) -> str:
    """A time of the server's in the reader's own time zone, to the minute."""
    if not text:
        return "-"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
