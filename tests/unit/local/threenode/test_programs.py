"""Asking for the built programs: all of them, or the builder's one line. Ready ones stand in for what takes minutes to compile."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest

from local.kube import build
from local.stack.events import Reporter, StackError
from local.threenode import programs


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in build.PROGRAMS.values():
        monkeypatch.setenv(program.override, "/bin/true")


@pytest.mark.usefixtures("ready")
def test_every_program_by_its_name() -> None:
    stream = io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    assert programs.ensure(Reporter(stream, as_json=True)) == {name: Path("/bin/true") for name in programs.NAMES}
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(event["name"], event["state"]) for event in events] == [("programs", "start"), ("programs", "done")]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("ready")
def test_the_builders_error_is_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_FLANNEL", "/no/such/program")
    with pytest.raises(StackError) as error:
        programs.ensure(Reporter(io.StringIO()))
    assert str(error.value) == (
        "TRAINYARD_FLANNEL=/no/such/program is no executable file: "
        "give the path of a binary built from local/kube, or unset it to build one"
    )
