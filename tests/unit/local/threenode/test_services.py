"""The first process of a node with real programs, in a process that may reap strangers: order, restarts, orphans, reports."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.stack.state import CHECKOUT

PROGRAM = """
import json, os, sys
from pathlib import Path
from local.stack.shim import PR_SET_CHILD_SUBREAPER, prctl
from local.threenode.services import Init, Service
folder = Path(sys.argv[1])
prctl(PR_SET_CHILD_SUBREAPER, 1)  # as process 1 of a namespace is
def log(name):
    return os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def report(text):
    (folder / "new").write_text(text)
    (folder / "new").replace(folder / "report.json")
services = [Service.of(one) for one in json.loads((folder / "services.json").read_text())]
code = Init(services, {"PATH": os.environ["PATH"], "FOLDER": str(folder)}, log, report).run()
os.killpg(0, 9) if code else os._exit(code)
"""


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *services: dict[str, Any]) -> None:
        (self.folder / "services.json").write_text(json.dumps(services))
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.folder)], env=environment)

    def report(self) -> dict[str, dict[str, Any]]:
        path = self.folder / "report.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.02)

    def words(self, name: str) -> list[str]:
        path = self.folder / f"{name}.log"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    yield made
    assert made.process is not None
    children = Path(f"/proc/{made.process.pid}/task/{made.process.pid}/children")
    left = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    made.process.kill()
    made.process.wait()
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def shell(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "argv": ["sh", "-c", text], **more}


GLIBCS_OWN = 0x180000000  # signals 32 and 33, which posix_spawn leaves ignored
SLEEP = "exec sleep 600"


def test_a_program_starts_when_its_file_is_there_and_what_it_needs_is_done(case: Case) -> None:
    there = str(case.folder / "socket")
    case.start(
        shell("first", SLEEP),
        shell("load", "exit 0", once=True, after=[there]),
        shell("last", SLEEP, needs=["load"]),
    )
    case.until(lambda: case.report().get("first", {}).get("state") == "running")
    assert [case.report()[name]["state"] for name in ("load", "last")] == ["waiting", "waiting"]
    Path(there).touch()
    case.until(lambda: case.report()["last"]["state"] == "running")
    assert case.report()["load"] == {"state": "done", "restarts": 0, "exit_code": 0}


def test_what_ends_is_started_again_and_later_each_time(case: Case) -> None:
    case.start(shell("one", "date +%s%N; exit 3"))
    case.until(lambda: len(case.words("one")) >= 4)
    moments = [int(word) / 1e9 for word in case.words("one")]
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert gaps[0] >= 0.15  # at least: a busy machine only makes them longer
    assert gaps[2] >= 0.6
    assert case.report()["one"]["exit_code"] == 3
    assert case.report()["one"]["restarts"] >= 3


def test_what_is_to_succeed_once_is_tried_until_it_does(case: Case) -> None:
    case.start(shell("load", 'echo x; [ "$(wc -l < "$FOLDER/load.log")" -ge 3 ]', once=True))
    case.until(lambda: case.report().get("load", {}).get("state") == "done")
    assert case.words("load") == ["x", "x", "x"]
    assert case.report()["load"]["restarts"] == 2


def test_a_program_that_is_not_there_says_so_in_its_log(case: Case) -> None:
    case.start({"name": "one", "argv": ["/no/such/program"]})
    case.until(lambda: "restarts" in case.report().get("one", {}) and case.report()["one"]["exit_code"] == 127)
    assert "cannot start /no/such/program" in (case.folder / "one.log").read_text()


def test_a_program_that_lives_and_does_not_do_its_work_is_started_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    works = case.folder / "works"
    works.touch()
    quick = "import local.threenode.services as s; s.CHECK_FIRST_S = s.CHECK_S = s.IDLE_S = 0.1\n"
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", quick + PROGRAM)
    case.start(shell("one", "echo up >> $FOLDER/starts; " + SLEEP, check=["sh", "-c", f"echo checked; test -e {works}"]))
    case.until(lambda: len(case.words("one")) >= 3)
    assert (case.folder / "starts").read_text() == "up\n"
    works.unlink()
    case.until(lambda: case.report()["one"]["restarts"] >= 1)
    works.touch()
    assert case.report()["one"]["exit_code"] == -signal.SIGKILL


def test_orphans_are_reaped(case: Case) -> None:
    case.start(shell("one", f"(sleep 0.2 & echo $! > {case.folder}/orphan); {SLEEP}"))
    case.until(lambda: (case.folder / "orphan").exists() and (case.folder / "orphan").read_text().strip())
    orphan = Path("/proc", (case.folder / "orphan").read_text().strip())
    case.until(lambda: not orphan.exists())  # a zombie would stay


def test_its_programs_have_sessions_of_their_own_and_no_blocked_signals(case: Case) -> None:
    case.start(shell("one", "echo $$ $(ps -o sid= -p $$); grep -E 'SigBlk|SigIgn' /proc/self/status; " + SLEEP))
    case.until(lambda: "SigIgn:" in case.words("one"))
    words = case.words("one")
    assert int(words[words.index("SigBlk:") + 1], 16) == 0
    assert int(words[words.index("SigIgn:") + 1], 16) & ~GLIBCS_OWN == 0
    assert words[0] == words[1]  # it leads a session


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(case: Case, number: signal.Signals) -> None:
    case.start(shell("one", SLEEP))
    case.until(lambda: case.report().get("one", {}).get("state") == "running")
    assert case.process is not None
    children = Path(f"/proc/{case.process.pid}/task/{case.process.pid}/children").read_text().split()
    case.process.send_signal(number)
    assert case.process.wait(10) == 0
    for pid in children:  # process 1 of a namespace takes them with it; this one is none
        os.kill(int(pid), signal.SIGKILL)
