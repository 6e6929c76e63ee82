"""TensorFlow's coordinator, made short."""

from __future__ import annotations

import logging
import os

import pytest

from trainer.engine.quiet import CoordinatorFilter, quiet_import


def passed(texts: list[tuple[float, str]]) -> list[str]:
    now = [0.0]
    chosen = CoordinatorFilter(clock=lambda: now[0])
    out = []
    for at, text in texts:
        now[0] = at
        record = logging.LogRecord("tensorflow", logging.ERROR, "file", 1, "%s", (text,), None)
        if chosen.filter(record):
            out.append(record.getMessage())
    return out


def test_a_lost_worker_is_one_line_a_half_minute() -> None:
    lost = "Worker /job:worker/replica:0/task:1 failed with UnavailableError():failed to connect\npages of it"
    other = "Worker /job:worker/replica:0/task:0 failed with UnavailableError():failed"
    lines = passed([(0.0, lost), (1.0, lost), (2.0, other), (31.0, lost)])
    assert [line.split(" ")[0] for line in lines] == ["worker-1", "worker-0", "worker-1"]
    assert "\n" not in lines[0]


def test_what_follows_from_it_is_dropped_and_all_else_is_kept() -> None:
    assert passed(
        [
            (0, "Remote function on worker /job:worker/replica:0/task:1 failed with CancelledError()"),
            (0, " /job:worker/task:1 encountered the following error when processing closure: UnavailableError()"),
            (0, "5 out of the last 5 calls to <function> triggered tf.function retracing. Tracing is expensive"),
            (0, "Gradients do not exist for variables"),
        ]
    ) == ["Gradients do not exist for variables"]


def test_banners_are_taken_out_and_all_else_comes_through_even_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def write() -> None:
        with quiet_import():
            os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
            os.write(2, b"I0000 00:00:1 1 port.cc:153] oneDNN custom operations are on. You may see\nsomething else\n")
            raise ImportError("no")

    with pytest.raises(ImportError):
        write()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "something else\nafter\n"
