"""``trainer local``: one process, real shards in a folder, one's own model; mistakes in seconds, with file and line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from tests.unit.images.trainer.engine.gang import SOURCES, Run
from trainer import local
from trainer.errors import DataError, UserError
from trainer.exit_codes import ExitCode
from trainer.storage import keys

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[4] / "examples" / "digits_model"


@pytest.fixture(scope="module")
def run(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environ().items():
            patch.setenv(name, value)
        yield Run(s3_server, tmp_path_factory.mktemp("run")).prepare()


@pytest.fixture(scope="module")
def data(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset as ``trainyard run --local`` fetches it: files by name, the manifest beside them."""
    folder = tmp_path_factory.mktemp("data")
    manifest = run.data.get_json(keys.manifest(run.context.dataset_root)) or {}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for file in manifest["files"]:
        (folder / file["key"].rsplit("/", 1)[1]).write_bytes(run.data.get(file["key"]) or b"")
    return folder


@pytest.fixture
def spec_file(run: Run, tmp_path: Path) -> Callable[..., str]:
    def write(**changes: Any) -> str:
        document = json.loads(json.dumps(run.document))
        for path, value in changes.items():
            section, _, name = path.partition("__")
            document[section] = {**document[section], name: value}
        path_ = tmp_path / "spec.json"
        path_.write_text(json.dumps(document))
        return str(path_)

    return write


def command(spec: str, data: Path, *paths: Path, cwd: Path, metrics: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, *paths)))}
    line = [sys.executable, "-m", "trainer.cli", "local", "--spec", spec, "--data", str(data)]
    if metrics is not None:
        line += ["--metrics", str(metrics)]
    return subprocess.run(line, env=environ, capture_output=True, text=True, timeout=250, cwd=cwd)


def test_ones_own_model_is_trained_and_evaluated_without_any_server(spec_file: Callable[..., str], data: Path, tmp_path: Path) -> None:
    spec = spec_file(
        model__build="digits_model.model:build",
        training__epochs=10,
        training__learning_rate=0.003,
        storage__endpoint="http://127.0.0.1:1",  # nobody listens there
    )
    done = command(spec, data, EXAMPLE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"step 300/300 epoch 10\.0 loss \d\.\d{4} \d+ examples/s", lines[-2])
    found = re.fullmatch(r"accuracy (0\.\d+) loss \d\.\d{4} over 240 examples", lines[-1])
    assert found
    assert float(found.group(1)) > 0.85


def test_a_build_that_ends_the_process_is_no_success(spec_file: Callable[..., str], data: Path, tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import sys\n\ndef build(config):\n    sys.exit(0)\n")
    done = command(spec_file(model__build="mine.net:build"), data, tmp_path, cwd=tmp_path)
    assert done.returncode == ExitCode.USER_ERROR
    assert "error: mine.net:build(config): mine/net.py:4: SystemExit: 0; code of a run must not end its process" in done.stderr.splitlines()


def test_a_build_that_ends_the_process_for_good_leaves_no_metrics(spec_file: Callable[..., str], data: Path, tmp_path: Path) -> None:
    """Nothing catches os._exit(0): `trainyard run --local` tells it from a success by the metrics file."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import os\n\ndef build(config):\n    os._exit(0)\n")
    metrics = tmp_path / "metrics.json"
    done = command(spec_file(model__build="mine.net:build"), data, tmp_path, cwd=tmp_path, metrics=metrics)
    assert (done.returncode, metrics.exists()) == (0, False)
    done = command(spec_file(training__epochs=1), data, cwd=tmp_path, metrics=metrics)
    assert done.returncode == 0, done.stderr
    assert json.loads(metrics.read_text())["examples"] == 240


def test_a_mistake_is_one_line_with_ones_own_file(spec_file: Callable[..., str], data: Path, tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import keras\n\ndef build(config):\n    return keras.layers.Dence(3)\n")
    done = command(spec_file(model__build="mine.net:build"), data, tmp_path, cwd=tmp_path)
    assert done.returncode == ExitCode.USER_ERROR
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "mine/net.py:4: AttributeError" in errors[0]
    assert "Dence" in errors[0]
    assert "Traceback" not in done.stderr


def test_the_shards_of_another_version_are_refused(spec_file: Callable[..., str], data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text((data / "manifest.json").read_text())
    for file in data.glob("*.tfrecord"):
        (other / file.name).write_bytes(b"other bytes")
    with pytest.raises(DataError, match=r"is not the shard file of digits 1\.0\.0: delete it and fetch it again"):
        local.main(["--spec", spec_file(), "--data", str(other)])


def test_from_s3_when_no_folder_is_given(run: Run, spec_file: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    assert local.main(["--spec", spec_file(training__epochs=1)]) == 0
    assert "over 240 examples" in capsys.readouterr().out


def test_what_is_not_there_is_named(tmp_path: Path, spec_file: Callable[..., str]) -> None:
    with pytest.raises(UserError, match=r"--spec .*nowhere.json: No such file"):
        local.main(["--spec", str(tmp_path / "nowhere.json")])
    with pytest.raises(DataError, match=r"manifest.json: No such file.*trainyard run --local"):
        local.main(["--spec", spec_file(), "--data", str(tmp_path)])
    with pytest.raises(UserError, match=r"model\.build: there is no module 'no_such'"):
        local.main(["--spec", spec_file(model__build="no_such:build")])
