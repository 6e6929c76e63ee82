"""Asking for the Kubernetes binary: progress is passed on, one line is the error, an interruption ends the builder. The builder here is a
program that prints what build.py prints (tests/unit/local/kube/test_build.py has that one)."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import pytest

from local.stack import binary, processes
from local.stack.events import Reporter, StackError
from local.stack.starter import base_environment
from local.stack.state import State


class Case:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.stream, self.checkout = State.at(folder / "var"), io.StringIO(), folder
        (folder / "local" / "kube").mkdir(parents=True)
        monkeypatch.setattr(binary, "CHECKOUT", folder)

    def builder(self, text: str) -> None:
        (self.checkout / "local" / "kube" / "build.py").write_text(text)

    def ask(self, stop_after_s: float = 60) -> Path:
        end = time.monotonic() + stop_after_s
        reporter = Reporter(self.stream, as_json=True)
        return binary.kube_binary(self.state, base_environment(), reporter, lambda: time.monotonic() > end)

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


def test_progress_and_notes_are_passed_on(case: Case) -> None:
    lines = [{"event": "note", "message": "waiting"}, {"event": "progress", "done": 1, "total": 9, "detail": "compiling x"}]
    case.builder("\n".join(f"print({json.dumps(line)!r}, flush=True)" for line in [*lines, {"event": "binary", "path": "/kube"}]))
    assert case.ask() == Path("/kube")
    assert case.events() == [lines[0], {**lines[1], "name": binary.PHASE}]
    assert processes.recorded(case.state.run) == {}


def test_the_builders_one_line_is_the_error(case: Case) -> None:
    case.builder('print(\'{"event": "error", "message": "no Go and no registry"}\'); raise SystemExit(1)')
    with pytest.raises(StackError, match=r"^no Go and no registry$"):
        case.ask()


def test_a_builder_that_fails_without_a_word_names_its_log(case: Case) -> None:
    case.builder('raise RuntimeError("boom")')
    with pytest.raises(StackError, match=r"see .*kube-build\.log"):
        case.ask()
    assert "boom" in (case.state.logs / "kube-build.log").read_text()


def test_an_interruption_ends_the_builder_and_its_children(case: Case) -> None:
    case.builder(f"import subprocess; subprocess.run([{sys.executable!r}, '-c', 'import time; time.sleep(600)'])")
    with pytest.raises(InterruptedError):
        case.ask(stop_after_s=1)
    assert processes.left_over(case.state.run) == []


def test_only_the_builders_own_variables_are_handed_on(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", "/cache")
    monkeypatch.setenv("TRAINYARD_TOKEN", "secret")
    case.builder(
        "import json, os; print(json.dumps({'event': 'binary', 'path': str(sorted(n for n in os.environ if n.startswith('TRAINYARD')))}))"
    )
    assert str(case.ask()) == "['TRAINYARD_CACHE']"
