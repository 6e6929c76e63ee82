"""``docs/isolation.md``: every attempt names a test that is there, and the attempts are many."""

from __future__ import annotations

import ast
import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "isolation.md").read_text(encoding="utf-8")
UNIT = CHECKOUT / "tests" / "unit" / "plugins" / "trainyard"
LEAST = 20


def rows() -> list[list[str]]:
    """The tables' rows, without their heads."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip() != "attempt"]


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)}


def test_every_attempt_names_a_test_that_is_there() -> None:
    assert len(rows()) >= LEAST
    for attempt, by, shown in rows():
        match = re.fullmatch(r"`(\S+\.py)::(test_\w+)`", shown)
        assert match, f"{attempt}: {shown}"
        assert by, attempt
        path = CHECKOUT / match[1] if match[1].startswith("tests/") else UNIT / match[1]
        assert path.is_file(), f"{attempt}: {path} is not there: name the test that shows it"
        assert match[2] in functions(path), f"{attempt}: {path} has no {match[2]}: name the test that shows it"
