"""The supervisor with real processes, in a process of its own kind: subreaper, restarts, orphans of a killed shim.

Each case runs in a child interpreter: becoming a subreaper and reaping strangers is not for the test process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from local.stack.state import CHECKOUT

PRELUDE = """
import logging, os, signal, sys, time
from pathlib import Path
from local.stack import shim
from local.stack.events import StackError
from local.stack.processes import Identity
from local.stack.supervisor import Component, Supervisor, children_of
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
folder = Path(sys.argv[1])
changes = []
supervisor = Supervisor(folder, folder, lambda: changes.append(supervisor.describe() if changes is not None else None))
def component(name, text, ready=lambda since: True, within=20.0, grace=2.0):
    return Component(name, [sys.executable, "-c", text], folder, dict(os.environ), grace, ready, within)
def until(condition, bound=20):
    end = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < end, "not in time"
        supervisor.poll(); time.sleep(0.02)
def main_of(name):
    until(lambda: supervisor.describe()[name]["pid"])
    return supervisor.describe()[name]["pid"]
SLEEP = "import time; time.sleep(600)"
try:
"""
EPILOGUE = """
finally:
    supervisor.stop(supervisor.names())
    assert children_of(os.getpid()) == [], children_of(os.getpid())
"""


def run(folder: Path, text: str) -> str:
    """Runs the case; its output. Everything it started is gone afterwards, or it fails."""
    program = PRELUDE + textwrap.indent(textwrap.dedent(text), "    ") + EPILOGUE
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run([sys.executable, "-c", program, str(folder)], env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_start_ready_stop(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        supervisor.start(component("one", "open('up', 'w').close(); " + SLEEP, ready=lambda since: (folder / "up").exists()))
        supervisor.wait_ready(["one"])
        assert supervisor.describe()["one"]["state"] == "running"
        one = Identity.of(main_of("one"))
        supervisor.stop(["one"])
        assert not one.alive()
        assert supervisor.names() == []
        """,
    )


def test_a_component_that_dies_is_started_again(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        supervisor.start(component("one", SLEEP))
        supervisor.wait_ready(["one"])
        for time_ in (1, 2):
            first = main_of("one")
            os.kill(first, signal.SIGKILL)
            until(lambda: supervisor.describe()["one"]["restarts"] == time_)
            until(lambda: supervisor.describe()["one"]["state"] == "running")
            assert main_of("one") != first
        """,
    )
    assert "one ended with 137" in said
    assert "started again in 0.2 s" in said
    assert "started again in 0.4 s" in said  # it backs off
    assert "one is ready again" in said


def test_a_killed_shims_orphans_are_buried_and_the_component_comes_back(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
        grown = "import subprocess, sys, time; " + child + "; time.sleep(600)"
        supervisor.start(component("one", grown))
        supervisor.start(component("bystander", SLEEP))
        supervisor.wait_ready(["one", "bystander"])
        main_of("one")
        until(lambda: len(shim.descendants(supervisor.describe()["one"]["shim"])) == 2)
        family = [Identity.of(pid) for pid in shim.descendants(supervisor.describe()["one"]["shim"])]
        bystander = main_of("bystander")
        os.kill(supervisor.describe()["one"]["shim"], signal.SIGKILL)
        until(lambda: supervisor.describe()["one"]["restarts"] == 1)
        until(lambda: not any(member.alive() for member in family))
        assert supervisor.describe()["bystander"] ["restarts"] == 0 and main_of("bystander") == bystander
        """,
    )
    assert "killing what a dead shim left" in said


def test_one_that_keeps_ending_while_it_starts_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        supervisor.start(component("one", "print('the reason', flush=True); raise SystemExit(4)", ready=lambda since: False))
        try:
            supervisor.wait_ready(["one"])
        except StackError as error:
            assert "one keeps ending" in str(error) and "the reason" in str(error) and "one.log" in str(error), error
            assert chr(10) not in str(error)
        else:
            raise AssertionError("it was not given up")
        """,
    )


def test_one_that_is_never_ready_is_given_up_in_its_time(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        supervisor.start(component("one", SLEEP, ready=lambda since: False, within=0.5))
        try:
            supervisor.wait_ready(["one"])
        except StackError as error:
            assert "not ready after" in str(error), error
        else:
            raise AssertionError("it was not given up")
        """,
    )


def test_waiting_can_be_interrupted(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        supervisor.start(component("one", SLEEP, ready=lambda since: False))
        try:
            supervisor.wait_ready(["one"], interrupted=lambda: True)
        except InterruptedError:
            pass
        else:
            raise AssertionError("not interrupted")
        """,
    )


def test_a_program_that_ends_by_itself(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        supervisor.start(component("other", SLEEP))
        supervisor.run_to_end(component("once", "open('done', 'w').close()"))
        assert (folder / "done").exists()
        assert supervisor.names() == ["other"]
        try:
            supervisor.run_to_end(component("fails", "raise SystemExit('no such tenant')"))
        except StackError as error:
            assert "fails failed (exit code 1)" in str(error) and "no such tenant" in str(error), error
        else:
            raise AssertionError("it did not fail")
        try:
            supervisor.run_to_end(component("hangs", SLEEP), bound_s=0.3)
        except StackError as error:
            assert "has not ended after" in str(error), error
        else:
            raise AssertionError("it did not fail")
        """,
    )


def test_a_failure_quotes_its_own_output_and_not_that_of_an_earlier_start(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        for text, said in (("raise SystemExit('an old fault')", "an old fault"), ("raise SystemExit('a new one')", "a new one"),
                           ("raise SystemExit(1)", None)):
            try:
                supervisor.run_to_end(component("sync", text))
            except StackError as error:
                assert (said is None and "its end" not in str(error)) or str(error).endswith(f"its end: {said}"), error
            else:
                raise AssertionError("it did not fail")
        try:
            supervisor.start(component("sync", "raise SystemExit('a third')", ready=lambda since: False))
            supervisor.wait_ready(["sync"])
        except StackError as error:
            assert "a third" in str(error) and "a new one" not in str(error), error
        assert "an old fault" in (folder / "sync.log").read_text()  # the file keeps all of them
        """,
    )


def test_readiness_is_asked_about_this_start(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import datetime
        asked = []
        began = datetime.datetime.now(datetime.UTC)
        supervisor.start(component("one", SLEEP, ready=lambda since: asked.append(since) or True))
        supervisor.wait_ready(["one"])
        os.kill(main_of("one"), signal.SIGKILL)
        until(lambda: len(asked) == 2)
        assert began <= asked[0] < asked[1] <= datetime.datetime.now(datetime.UTC)
        """,
    )


def test_every_change_is_told(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        supervisor.start(component("one", SLEEP))
        supervisor.wait_ready(["one"])
        supervisor.stop(["one"])
        states = [change.get("one", {}).get("state") for change in changes]
        assert states == ["starting", "running", None], states
        """,
    )


def test_a_big_log_is_set_aside_at_the_next_start(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import local.stack.supervisor as module
        module.LOG_LIMIT = 10
        (folder / "one.log").write_text("x" * 20)
        supervisor.run_to_end(component("one", "print('new')"))
        assert (folder / "one.log").read_text() == "new" + chr(10)
        assert (folder / "one.log.1").read_text() == "x" * 20
        """,
    )
