"""The build of the Kubernetes binary with a stand-in `go`: cache, lock, kill, progress and the one line of a failure.

The stand-in is a program that prints what go prints; that the real one compiles is shown by every test that starts a cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from local import toolchain
from local.kube import build
from local.toolchain import CHECKOUT, ToolError

GO = """#!/bin/sh
case "$1" in
  env) echo go1.30.0 ;;
  list) echo "go: downloading k8s.io/api v0.34.4" >&2
        printf 'a/b\\tstale dependency: x\\nc/d\\tbuild ID mismatch\\nmain\\tnot installed but available in build cache\\n' ;;
  build) BODY
esac
"""
GOOD = """echo a/b >&2; echo c/d >&2
        while [ $# -gt 1 ]; do if [ "$1" = -o ]; then out=$2; fi; shift; done
        echo built > "$out"; echo x >> "$COUNT" ;;"""


class Case:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.source = folder / "source"
        self.source.mkdir()
        (self.source / "go.mod").write_text("module x\n\ngo 1.24.0\n")
        (self.source / "go.sum").write_text("k8s.io/api v0.34.4 h1:x=\nk8s.io/api v0.34.4/go.mod h1:y=\n")
        (self.source / "main.go").write_text("package main\n")
        monkeypatch.delenv("TRAINYARD_KUBE", raising=False)
        monkeypatch.setenv("TRAINYARD_CACHE", str(folder / "cache"))
        monkeypatch.setenv("COUNT", str(folder / "count"))
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.events: list[tuple[str, dict[str, Any]]] = []

    def go(self, body: str = GOOD) -> None:
        path = self.folder / "go"
        path.write_text(GO.replace("BODY", body))
        path.chmod(0o755)

    def ensure(self) -> Path:
        return build.ensure(lambda name, fields: self.events.append((name, fields)), self.source)

    def builds(self) -> int:
        count = self.folder / "count"
        return len(count.read_text().split()) if count.exists() else 0

    def left(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cache" / "kube" / build.key(self.source)).iterdir())


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


def test_it_is_compiled_once_with_progress_by_packages(case: Case) -> None:
    case.go()
    path = case.ensure()
    assert path.read_text() == "built\n"
    assert case.left() == ["kube"]
    progress = [fields for name, fields in case.events if name == "progress"]
    assert progress == [
        {"done": 1, "total": 1, "detail": "downloading k8s.io/api v0.34.4"},
        {"done": 1, "total": 2, "detail": "compiling a/b"},
        {"done": 2, "total": 2, "detail": "compiling c/d"},
    ]
    assert case.ensure() == path
    assert case.builds() == 1


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "main.go"])
def test_a_change_of_the_source_is_another_binary(case: Case, name: str) -> None:
    before = build.key(case.source)
    with open(case.source / name, "a") as file:
        file.write("\n")
    assert build.key(case.source) != before


def test_a_ready_binary_is_taken_as_it_is(case: Case) -> None:
    case.monkeypatch.setenv("TRAINYARD_KUBE", "/bin/true")
    assert case.ensure() == Path("/bin/true")
    assert case.builds() == 0


@pytest.mark.parametrize("name", ["missing", "plain", "."])
def test_a_ready_binary_that_is_none_is_refused(case: Case, name: str) -> None:
    (case.folder / "plain").touch(mode=0o644)
    given = str(case.folder / name)
    case.monkeypatch.setenv("TRAINYARD_KUBE", given)
    with pytest.raises(ToolError, match=f"TRAINYARD_KUBE={given} is no executable file"):
        case.ensure()


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("write /tmp/x: no space left on device", "no space left on the disk"),
        ('x: Get "https://…": dial tcp: lookup x: no such host', "set GOPROXY .* or give a ready binary by TRAINYARD_KUBE=path"),
        ("./main.go:3:1: syntax error", r"go build failed: .*syntax error"),
    ],
)
def test_a_failed_build_is_one_line_and_leaves_nothing(case: Case, says: str, expected: str) -> None:
    case.go(f"echo '{says}' >&2; exit 1 ;;")
    with pytest.raises(ToolError, match=expected) as error:
        case.ensure()
    assert "\n" not in str(error.value)
    assert case.left() == []


def program(case: Case) -> list[str]:
    """build.py as a program, over the case's source."""
    text = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from pathlib import Path; from local.kube import build; "
    text += f"build.ensure.__defaults__ = (Path({str(case.source)!r}), build.KUBE); sys.argv[1:] = ['--json']; sys.exit(build.main())"
    return [sys.executable, "-c", text]


def last(text: str) -> dict[str, Any]:
    return dict(json.loads(text.splitlines()[-1]))


SLOW = 'echo a/b >&2; while [ ! -e "$COUNT.go" ]; do sleep 0.05; done; ' + GOOD


def test_two_at_once_compile_once(case: Case) -> None:
    case.go(SLOW)
    both = [subprocess.Popen(program(case), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    time.sleep(1.0)
    (case.folder / "count.go").touch()
    said = [one.communicate(timeout=30)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert {last(text)["path"] for text in said} == {str(case.folder / "cache" / "kube" / build.key(case.source) / "kube")}
    assert case.builds() == 1
    assert sum("is compiling Kubernetes: waiting for it" in text for text in said) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_build_leaves_no_process_and_nothing_half_made(case: Case, number: signal.Signals) -> None:
    case.go('echo $$ > "$COUNT.pid"; ' + SLOW)
    one = subprocess.Popen(program(case), stdout=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 20
    while not (case.folder / "count.pid").exists() or not (case.folder / "count.pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pid = int((case.folder / "count.pid").read_text())
    one.send_signal(number)
    assert one.wait(20) != 0
    assert one.stdout is not None
    one.stdout.close()
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the compiler lives on"
        time.sleep(0.02)
    assert "kube" not in case.left()
    case.go()
    assert case.ensure().read_text() == "built\n"
    assert case.left() == ["kube"]  # what the killed one had begun is gone too


def test_users_flags_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GOFLAGS": "-race", "GOOS": "plan9", "CGO_ENABLED": "1", "GOTOOLCHAIN": "auto"}.items():
        monkeypatch.setenv(name, value)
    environment = build.go_environment()
    assert "GOOS" not in environment
    assert (environment["GOFLAGS"], environment["CGO_ENABLED"], environment["GOTOOLCHAIN"]) == ("-mod=readonly", "0", "local")


def test_the_version_is_go_mods() -> None:
    assert f"k8s.io/kubernetes {build.VERSION}" in (build.SOURCE / "go.mod").read_text()
    assert f"gitVersion={build.VERSION}" in build.FLAGS[-1]
    major, minor, _ = build.VERSION.removeprefix("v").split(".")
    assert f"gitMajor={major}" in build.FLAGS[-1]
    assert f"gitMinor={minor}" in build.FLAGS[-1]
    assert toolchain.least_go(build.SOURCE / "go.mod") >= (1, 24)


# -------------------------------------------------------------------------------------------------------- the other programs
def test_every_program_has_its_sources_and_a_variable_of_its_own() -> None:
    for program in build.PROGRAMS.values():
        assert (build.SOURCE / program.module / "go.mod").is_file()
        assert program.main is None or (build.SOURCE / program.module / program.main).is_file()
    assert [program.override for program in build.PROGRAMS.values()][-1] == "TRAINYARD_KUBE_ROUTER"
    assert len({build.key(program=program) for program in build.PROGRAMS.values()}) == len(build.PROGRAMS)


def test_a_change_of_one_program_compiles_no_other(case: Case) -> None:
    (case.source / "node").mkdir()
    (case.source / "node" / "main.go").write_text("package main\n")
    node = build.PROGRAMS["node"]
    before = (build.key(case.source), build.key(case.source, node))
    (case.source / "node" / "main.go").write_text("package main // changed\n")
    after = (build.key(case.source), build.key(case.source, node))
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


def test_a_program_is_compiled_in_its_module_and_kept_under_its_name(case: Case) -> None:
    module = case.source / "kube-router"
    module.mkdir()
    for name in ("go.mod", "go.sum"):
        (module / name).write_text((case.source / name).read_text())
    case.go('echo "$PWD $*" > "$COUNT.where"; ' + GOOD)
    path = build.ensure(lambda name, fields: None, case.source, build.PROGRAMS["kube-router"])
    assert path.name == "kube-router"
    where, *words = (case.folder / "count.where").read_text().split()
    assert where == str(module)
    assert words[-1] == "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
    assert "-X" not in words  # Kubernetes' version is no other program's


def test_programs_are_told_one_by_one(case: Case) -> None:
    ready = {f"TRAINYARD_{name}": "/bin/true" for name in ("NODE", "PAUSE")}
    command = [sys.executable, str(build.SOURCE / "build.py"), "--json", "node", "pause"]
    done = subprocess.run(command, env={**os.environ, **ready}, capture_output=True, text=True, timeout=30, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"event": "binary", "program": "node", "path": "/bin/true"},
        {"event": "binary", "program": "pause", "path": "/bin/true"},
    ]
    done = subprocess.run([*command, "web"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, "there is no program 'web': they are kube, node, " in done.stderr) == (2, True)


def test_the_programs_of_the_cluster_are_those_that_are_built() -> None:
    from local.threenode import programs

    assert set(programs.NAMES) == set(build.PROGRAMS)
