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


def test_does_not_end_what_goes_on_or_has_deadlines_of_its_own() -> None:
    """On a clock of the test's: the watch looks every tenth of a second, and the machine may be slow."""
    codes: list[int] = []
    looked = threading.Semaphore(0)
    now = [0.0]

    def clock() -> float:
        if threading.current_thread().name == "stall":
            looked.release()
        return now[0]

    def until_looked() -> None:
        while looked.acquire(blocking=False):
            pass
        for _ in range(2):  # the second look began after the time was set
            assert looked.acquire(timeout=30)

    watch = Watch(limit_s=0.4, end=codes.append, clock=clock)
    for _ in range(5):
        watch.touch("training")
        now[0] += 0.3
        until_looked()
    watch.rest("uploading")
    now[0] += 1000
    until_looked()
    assert codes == []
    watch.touch("training")
    now[0] += 0.5
    assert looked.acquire(timeout=30)
    until_looked_or_ended = time.monotonic() + 30
    while not codes and time.monotonic() < until_looked_or_ended:
        time.sleep(0.01)
    assert codes == [ExitCode.PEERS_MISSING]
