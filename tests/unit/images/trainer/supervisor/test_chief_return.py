from __future__ import annotations

import socket

from tests.fixtures.s3 import free_ports
from tests.unit.images.trainer.supervisor.conftest import until
from trainer.supervisor.gang_watch import ChiefReturn


def test_a_chief_that_stays_away_is_given_up() -> None:
    watch = ChiefReturn(f"127.0.0.1:{free_ports(1)[0]}", within_s=0.3, every_s=0.05)
    told: list[int] = []
    watch.start(lambda: told.append(1))
    until(lambda: watch.verdict, "the verdict", 20)
    assert watch.verdict is not None
    assert watch.verdict.exit_code == 43
    assert "did not come back within 0 s" in watch.verdict.message
    assert told == [1]


def test_a_chief_that_comes_back_is_waited_for_no_longer() -> None:
    port = free_ports(1)[0]
    watch = ChiefReturn(f"127.0.0.1:{port}", within_s=60, every_s=0.05)
    watch.start(lambda: None)
    until(lambda: watch.looks > 2, "a few looks", 20)
    with socket.create_server(("127.0.0.1", port)):
        until(lambda: watch.ended, "the watch's end", 20)
    assert watch.verdict is None
