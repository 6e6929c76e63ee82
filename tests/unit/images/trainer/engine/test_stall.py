"""The watch that ends a chief whose peers hang."""

from __future__ import annotations

import threading
import time

from trainer.engine.stall import Watch
from trainer.exit_codes import ExitCode


def test_ends_with_what_was_being_done(capfd: object) -> None:
    ended = threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    watch = Watch(limit_s=0.2, end=end)
    watch.touch("training")
    assert ended.wait(20)
    assert codes == [ExitCode.PEERS_MISSING]
    captured = capfd.readouterr().err  # type: ignore[attr-defined]
    assert "nothing happened for 0 s while training" in captured
    assert "Thread" in captured, "the stacks of all threads"


def test_does_not_end_what_goes_on() -> None:
    codes: list[int] = []
    watch = Watch(limit_s=3.0, end=codes.append)
    for _ in range(8):
        time.sleep(0.5)
        watch.touch("training")
    watch.stop()
    time.sleep(1.5)
    assert codes == []
