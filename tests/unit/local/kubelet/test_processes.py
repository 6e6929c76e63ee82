"""The runtime and its shims with real processes: streams, signals, exit codes, and that nothing is left whoever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local.kubelet import proctree
from local.kubelet.logformat import parse
from local.kubelet.processes import CHECKOUT, Process, Processes, RuntimeLost

DAEMON = "(setsid sleep 4000 </dev/null >/dev/null 2>&1 &) ; (sleep 4000 &) ; echo up; sleep 4000"


def wait_until(condition: Callable[[], object], what: str, within: float = 15.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Bench:
    """The runtime, and containers in folders of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: list[bool] = []
        self.processes = Processes(lambda: self.lost.append(True))

    def start(self, *command: str, name: str = "main", env: dict[str, str] | None = None) -> Process:
        home = self.folder / "pods" / name / "containers" / "main"
        home.mkdir(parents=True)
        process = Process(f"{name}/main", home, lambda: None)
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **(env or {})}
        self.processes.start(process, list(command), environment, home, home / "log")
        return process

    def shell(self, text: str, name: str = "main") -> Process:
        return self.start("sh", "-c", text, name=name)

    def ended(self, process: Process) -> dict[str, object]:
        wait_until(lambda: process.ended is not None, f"{process.id} did not end")
        assert process.ended is not None
        return process.ended

    def output(self, process: Process) -> list[tuple[str, str]]:
        entries = [parse(line) for line in (process.folder / "log").read_bytes().splitlines()]
        return [(entry[1].decode(), entry[3].decode()) for entry in entries if entry]

    def up(self, process: Process) -> None:
        wait_until(lambda: (process.folder / "log").exists() and ("stdout", "up") in self.output(process), f"{process.id} did not come up")

    def members(self, process: Process) -> list[int]:
        """Every live process whose home is the container's folder."""
        return processes_with_home(process.folder)


def processes_with_home(folder: Path) -> list[int]:
    found = []
    for pid, process in proctree.table().items():
        with contextlib.suppress(OSError):
            if not process.zombie and b"HOME=%s" % os.fsencode(folder) in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.processes.close()


@pytest.mark.parametrize(
    ("text", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)],
)
def test_exit_codes(bench: Bench, text: str, code: int) -> None:
    process = bench.shell(text)
    assert bench.ended(process)["exitCode"] == code
    assert json.loads((process.folder / "exit.json").read_text())["exitCode"] == code


def test_both_streams_go_to_the_log(bench: Bench) -> None:
    process = bench.shell("echo out; echo err >&2; printf end")
    bench.ended(process)
    assert sorted(bench.output(process)) == [("stderr", "err"), ("stdout", "end"), ("stdout", "out")]


def test_all_that_was_written_is_in_the_log_when_the_end_is_told(bench: Bench) -> None:
    process = bench.shell("seq 1 200000; (sleep 0.1; echo never) & kill -KILL $$")
    bench.ended(process)
    assert [text for _, text in bench.output(process)] == [str(number) for number in range(1, 200001)]


def test_a_container_sees_its_environment_and_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKS", "1")
    process = bench.start("env", env={"MINE": "x", "EMPTY": ""})
    bench.ended(process)
    home = str(process.folder)
    assert sorted(text for _, text in bench.output(process)) == ["EMPTY=", f"HOME={home}", "MINE=x", "PATH=/usr/bin:/bin"]


def test_a_container_inherits_nothing_but_its_three_streams(bench: Bench) -> None:
    """Neither open files, nor ignored or blocked signals, nor a terminal, nor the shim's session."""
    program = "import os; print(sorted(os.listdir('/proc/self/fd'))); print(os.getsid(0) == os.getpid(), os.readlink('/proc/self/fd/0'))"
    process = bench.start("python3", "-c", program, env={"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"})
    bench.ended(process)
    # 3 is the folder that is being listed.
    assert [text for _, text in bench.output(process)] == ["['0', '1', '2', '3']", "True /dev/null"]
    shell = bench.shell("grep -E '^Sig(Blk|Ign)' /proc/self/status", name="signals")
    bench.ended(shell)
    # 32 and 33 are the C library's own: GNU make hands them on as ignored, and nobody but the library may reset them.
    assert [int(text.split()[1], 16) & ~(0b11 << 31) for _, text in bench.output(shell)] == [0, 0]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-program", 'exec: "no-such-program": executable file not found in $PATH'),
        ("/no/such/file", 'exec: "/no/such/file": no such file or directory'),
        ("./here", 'exec: "./here": permission denied'),
    ],
)
def test_a_command_that_cannot_be_run(bench: Bench, command: str, words: str) -> None:
    home = bench.folder / "pods" / "main" / "containers" / "main"
    home.parent.mkdir(parents=True)
    process = Process("main/main", home, lambda: None)
    home.mkdir()
    (home / "here").write_text("no program")
    bench.processes.start(process, [command], {"PATH": "/usr/bin:/bin"}, home, home / "log")
    assert bench.ended(process) | {"startedAt": "", "finishedAt": ""} == {
        "exitCode": 128,
        "reason": "StartError",
        "message": words,
        "startedAt": "",
        "finishedAt": "",
    }


def test_a_file_that_is_no_program(bench: Bench) -> None:
    home = bench.folder / "x"
    home.mkdir()
    (home / "here").write_bytes(b"\x7fELF and no more")
    (home / "here").chmod(0o755)
    process = Process("x/main", home, lambda: None)
    bench.processes.start(process, ["./here"], {}, home, home / "log")
    assert bench.ended(process)["message"] == 'exec: "./here": Exec format error'


def test_the_kernel_takes_a_container_before_the_cluster(bench: Bench) -> None:
    process = bench.shell("cat /proc/self/oom_score_adj")
    bench.ended(process)
    assert bench.output(process) == [("stdout", "500")]


def test_term_reaches_the_whole_group_and_kill_everything(bench: Bench) -> None:
    process = bench.shell(
        "trap 'echo got term' TERM; (trap 'echo child too' TERM; echo up; while :; do sleep 0.05; done) & while :; do wait; done"
    )
    bench.up(process)
    bench.processes.terminate(process)
    wait_until(lambda: {("stdout", "got term"), ("stdout", "child too")} <= set(bench.output(process)), "TERM did not reach both")
    assert process.ended is None
    bench.processes.kill(process)
    assert bench.ended(process)["exitCode"] == 137
    assert bench.members(process) == []


def test_the_end_of_the_first_process_is_the_end_of_all(bench: Bench) -> None:
    process = bench.shell(f"{DAEMON.rsplit(';', 1)[0]}; sleep 0.3; exit 5")
    bench.up(process)
    assert len(bench.members(process)) >= 3
    assert bench.ended(process)["exitCode"] == 5
    assert bench.members(process) == []


def test_a_container_that_closed_its_streams_still_ends(bench: Bench) -> None:
    process = bench.shell("exec >&- 2>&-; sleep 0.2; exit 4")
    assert bench.ended(process)["exitCode"] == 4


def test_orphans_are_reaped_while_the_container_runs(bench: Bench) -> None:
    process = bench.shell("for i in 1 2 3 4 5; do (sleep 0.01 &); done; echo up; sleep 4000")
    bench.up(process)
    shim = json.loads((process.folder / "state.json").read_text())["shim"]["pid"]

    def zombies() -> list[int]:
        return [item.pid for item in proctree.table().values() if item.parent == shim and item.zombie]

    wait_until(lambda: not zombies() and len(bench.members(process)) == 2, "zombies stay")


def test_the_record_names_processes_by_pid_and_start_time(bench: Bench) -> None:
    process = bench.shell("echo up; sleep 4000")
    bench.up(process)
    state = json.loads((process.folder / "state.json").read_text())
    for key in ("shim", "process"):
        found = proctree.read(state[key]["pid"])
        assert found is not None
        assert found.started == state[key]["started"]
    assert state["process"]["pid"] == process.pid


def test_closing_ends_everything_and_the_records_say_why(bench: Bench) -> None:
    stubborn = bench.shell(f"trap '' TERM; {DAEMON}", name="stubborn")
    polite = bench.shell("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", name="polite")
    for process in (stubborn, polite):
        bench.up(process)
    bench.processes.close()
    for process in (stubborn, polite):
        assert bench.members(process) == []
        assert json.loads((process.folder / "exit.json").read_text())["runtimeEnded"] is True
    assert bench.lost == [], "that was meant"


def test_a_killed_shim_is_told_and_leaves_nothing(bench: Bench) -> None:
    process, other = bench.shell(DAEMON, name="one"), bench.shell(DAEMON, name="two")
    for each in (process, other):
        bench.up(each)
    os.kill(json.loads((process.folder / "state.json").read_text())["shim"]["pid"], signal.SIGKILL)
    ended = bench.ended(process)
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    wait_until(lambda: not bench.members(process), "left-overs of a killed shim")
    assert len(bench.members(other)) >= 3, "its neighbour is left alone"


def test_a_killed_runtime_ends_all_containers_and_is_told(bench: Bench) -> None:
    process = bench.shell(DAEMON)
    bench.up(process)
    os.kill(bench.processes.runtime_pid, signal.SIGKILL)
    wait_until(lambda: not bench.members(process), "a container outlived the runtime")
    wait_until(lambda: bench.lost == [True], "the loss is told once")
    with pytest.raises(RuntimeLost):
        bench.processes.terminate(process)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_when_the_kubelet_dies_in_any_way_its_containers_die(tmp_path: Path, number: signal.Signals) -> None:
    program = f"""
        import sys, time, pathlib
        sys.path.insert(0, {str(CHECKOUT)!r})
        from local.kubelet.processes import Process, Processes
        processes = Processes(lambda: None)
        for index in range(3):
            home = pathlib.Path({str(tmp_path)!r}) / str(index)
            home.mkdir()
            command = ["sh", "-c", "trap '' TERM; {DAEMON}"]
            environment = {{"PATH": "/usr/bin:/bin", "HOME": str(home)}}
            processes.start(Process(f"{{index}}/main", home, lambda: None), command, environment, home, home / "log")
        time.sleep(600)
    """
    kubelet = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    homes = [tmp_path / str(index) for index in range(3)]
    try:
        wait_until(lambda: all(len(processes_with_home(home)) >= 3 for home in homes), "the containers did not come up")
    finally:
        kubelet.send_signal(number)
        kubelet.wait(10)
    wait_until(lambda: not any(processes_with_home(home) for home in homes), "a container outlived its kubelet", within=10)


def test_many_at_once(bench: Bench) -> None:
    started = [bench.shell(f"echo {index}; exit {index % 7}", name=f"c{index}") for index in range(60)]
    for index, process in enumerate(started):
        assert bench.ended(process)["exitCode"] == index % 7
        assert bench.output(process) == [("stdout", str(index))]
    assert bench.processes.running() == []


def test_a_large_command_line_and_environment(bench: Bench) -> None:
    process = bench.start("sh", "-c", "test ${#1} = 100000 && test ${#SPEC} = 120000", "x", "a" * 100_000, env={"SPEC": "é" * 60_000})
    assert bench.ended(process)["exitCode"] == 0
