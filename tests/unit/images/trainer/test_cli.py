from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.run_spec import run_spec_document
from trainer import cli

SOURCE = Path(cli.__file__).parents[1]


def _run(*arguments: str, spec: dict[str, Any] | None = None, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(SOURCE), "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    if spec is not None:
        environ["TRAINYARD_RUN_SPEC"] = json.dumps(spec)
    return subprocess.run(
        [sys.executable, "-m", "trainer.cli", *arguments], env=environ, cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_an_error_of_ours_is_one_line_and_its_exit_code(tmp_path: Path) -> None:
    done = _run("step", "plan", spec=run_spec_document(seed="x"), folder=tmp_path)
    assert done.returncode == 40
    assert done.stderr == "error: run spec: key seed: expected a whole number, got text ('x')\n"


def test_without_a_run_spec(tmp_path: Path) -> None:
    done = _run("step", "plan", folder=tmp_path)
    assert done.returncode == 40
    assert "TRAINYARD_RUN_SPEC is not set" in done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["step"], ["step", "cook"], ["step", "shard"], ["step", "plan", "--index", "1"], ["replica", "x"]]
)
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: trainer" in capsys.readouterr().err


def test_starting_up_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, trainer.cli; print([m for m in ('boto3', 'tensorflow', 'tensorflow_datasets', 'numpy', 'keras') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("step", ["plan", "gate", "export", "shard"])
def test_the_quick_steps_import_no_tensorflow(step: str) -> None:
    code = (
        f"import sys, trainer.steps.context, trainer.steps.{step}; print([m for m in ('tensorflow', 'keras', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
