"""Events for a person and for a program, and the reader who goes away."""

from __future__ import annotations

import io
import json
import os

import pytest

from local.stack.events import Reporter


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_events_are_one_a_line() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream, as_json=True)
    with reporter.phase("node", "local"):
        reporter.progress("node", 1, 2, "half")
    reporter.note("hello")
    start, progress, done, note = lines(stream)
    assert start == {"event": "phase", "name": "node", "state": "start", "detail": "local"}
    assert progress == {"event": "progress", "name": "node", "done": 1, "total": 2, "detail": "half"}
    assert done["state"] == "done"
    assert isinstance(done["seconds"], float)
    assert note == {"event": "note", "message": "hello"}


def test_a_failed_phase_is_told_and_passed_on() -> None:
    stream = io.StringIO()

    def fail() -> None:
        with Reporter(stream, as_json=True).phase("node"):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert lines(stream)[-1]["state"] == "failed"
    assert lines(stream)[-1]["detail"] == "broken"


def test_plain_progress_is_thinned_but_the_last_is_shown() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    for done in range(1, 101):
        reporter.progress("build", done, 100, "x")
    assert stream.getvalue().splitlines() == ["    build 1/100 x", "    build 100/100 x"]


def test_a_reader_that_goes_away_is_noticed_without_writing() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        reporter = Reporter(stream)
        assert not reporter.reader_gone()
        os.close(read)
        assert reporter.reader_gone()
    assert not Reporter(io.StringIO()).reader_gone()
