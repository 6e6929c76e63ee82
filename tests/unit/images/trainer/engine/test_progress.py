"""Progress lines and ``progress.json``."""

from __future__ import annotations

import re
import threading
from typing import Any

from trainer.engine.progress import EVERY_S, Meter, Progress, Publisher, Stop
from trainer.errors import StorageError, SupersededError

SAMPLE = Progress(step=120, total_steps=250, epoch=1.92, loss=0.21341, examples_per_second=850.4)


def test_the_line_is_the_one_that_others_parse() -> None:
    assert SAMPLE.line() == "step 120/250 epoch 1.9 loss 0.2134 850 examples/s"
    assert re.fullmatch(r"step (\d+)/(\d+) epoch ([\d.]+) loss ([\d.]+) (\d+) examples/s", SAMPLE.line())


def test_the_document_has_the_keys_of_the_contract() -> None:
    assert set(SAMPLE.document()) == {"step", "total_steps", "epoch", "loss", "examples_per_second", "at"}


def test_a_report_is_due_after_its_time_and_only_when_something_was_done() -> None:
    now = [0.0]
    meter = Meter(10, 100, 10, 0, clock=lambda: now[0])
    now[0] = EVERY_S + 1
    assert not meter.due()
    meter.add(1, 1.0)
    assert meter.due()
    meter.report()
    assert not meter.due()
    assert meter.mean_loss == 1.0, "the last report's, when nothing came since"


def publish(write: Any, *progress: Progress) -> tuple[Publisher, list[str]]:
    said: list[str] = []
    publisher = Publisher(write, said.append)
    for one in progress:
        publisher.put(one)
    publisher.close()
    return publisher, said


def test_the_newest_is_written_before_the_end() -> None:
    written: list[int] = []
    publish(lambda document: written.append(document["step"]), *[Progress(step, 9, 0, 0, 0) for step in range(1, 10)])
    assert written[-1] == 9


def test_an_s3_that_is_away_is_said_once_and_stops_nothing() -> None:
    tried = threading.Semaphore(0)

    def write(document: dict[str, Any]) -> None:
        tried.release()
        raise StorageError("S3 at nowhere does not answer")

    said: list[str] = []
    publisher = Publisher(write, said.append)
    for _ in range(3):
        publisher.put(SAMPLE)
        assert tried.acquire(timeout=10)
    publisher.close()
    assert len(said) == 1
    assert "training goes on" in said[0]
    assert publisher.stop_reason is None


def test_a_superseded_generation_is_told_to_the_loop() -> None:
    def write(document: dict[str, Any]) -> None:
        raise Stop(SupersededError("generation 2 holds the run"))

    publisher, said = publish(write, SAMPLE)
    assert isinstance(publisher.stop_reason, SupersededError)
    assert said == []
