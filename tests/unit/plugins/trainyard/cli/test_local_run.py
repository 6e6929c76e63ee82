"""``run --local``: how the trainer's end becomes the command's. The trainer here is a program that ends in a chosen way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.cli import local_run
from trainyard.cli.exits import Exit
from trainyard.cli.output import Output

SPEC = {"dataset": {"name": "digits", "version": "1.0.0", "layout": "abc"}}


class Platform:
    """What the platform answers: a spec, and no file to fetch."""

    def local_run(self, dag_id: str, version: str | None, values: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {**SPEC, "dag": dag_id, "values": values}, "files": [], "manifest": {}}


@pytest.mark.parametrize(
    ("body", "exit_code", "state"),
    [
        ("write({'accuracy': 0.9})", Exit.OK, "success"),
        ("os._exit(0)", Exit.RUN_FAILED, "failed"),  # a user's model can do this, and nothing in that process can catch it
        ("write({'accuracy': 0.9}); os._exit(64)", Exit.RUN_FAILED, "failed"),
        ("raise SystemExit(64)", Exit.RUN_FAILED, "failed"),
    ],
)
def test_only_metrics_are_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], body: str, exit_code: Exit, state: str
) -> None:
    trainer = tmp_path / "trainer"
    trainer.mkdir()
    (trainer / "__init__.py").touch()
    (trainer / "cli.py").write_text(
        "import json, os, sys\n\n"
        "def write(metrics):\n"
        "    open(sys.argv[sys.argv.index('--metrics') + 1], 'w').write(json.dumps(metrics))\n\n"
        f"{body}\n"
    )
    monkeypatch.setattr(local_run, "_trainer_paths", lambda: [str(tmp_path)])
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    code = local_run.train_here(Platform(), {"dag_id": "train_a_b"}, None, {}, None, Output(as_json=True))  # type: ignore[arg-type]
    end = json.loads(capfd.readouterr().out)
    assert code == exit_code
    assert (end["state"], end["metrics"]) == (state, {"accuracy": 0.9} if state == "success" else None)
