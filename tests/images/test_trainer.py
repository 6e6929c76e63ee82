"""The trainer's image as a pod runs it: user 65532, read-only root, an empty working directory, no network, no capability."""

from __future__ import annotations

import json

import pytest

from tests.images.conftest import Image, run
from tests.images.ending import seconds_to_end, shows
from trainyard.contract.exit_codes import ExitCode

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MOST_S = 2.0
"""From TERM to the container's end (design: the nets against left-over PS rest on it)."""
PREPARE = """
import json
from pathlib import Path
from trainer.data.builders import load_builder
made = load_builder({name!r}, {version!r}, {{}}, Path("data"))
made.download_and_prepare()
print(json.dumps({{split: made.info.splits[split].num_examples for split in made.info.splits}}))
"""
TRAIN = """
import json, keras, numpy
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
model.compile(optimizer="sgd", loss="mse")
model.fit(numpy.ones((8, 4)), numpy.ones((8, 3)), epochs=2, verbose=0)
model.export("out", verbose=False)
import tensorflow as tf
exported = tf.saved_model.load("out")
same = numpy.allclose(exported.serve(numpy.ones((1, 4), "float32")), model(numpy.ones((1, 4))))
print(json.dumps({"backend": keras.backend.backend(), "same": bool(same)}))
"""


def test_its_command_is_there(trainer: Image) -> None:
    done = trainer.run("python", "-m", "trainer.cli", "--help")
    assert "one step of the run that the environment names" in done.stdout


def test_without_a_command_it_is_the_trainer_under_its_supervisor(trainer: Image) -> None:
    done = run("docker", "run", "--rm", "--read-only", "--tmpfs", "/work", "--network", "none", trainer.reference)
    assert "usage: trainer" in done.stdout
    done = run(
        "docker", "run", "--rm", "--read-only", "--tmpfs", "/work", "--network", "none", trainer.reference, "step", "plan", check=False
    )
    assert done.returncode == ExitCode.USER_ERROR, done.stderr
    assert "TRAINYARD_RUN_SPEC is not set" in done.stderr + done.stdout


def test_tensorflow_trains_and_exports_on_a_read_only_root(trainer: Image) -> None:
    answer = trainer.python(TRAIN, options=("--env", "TF_CPP_MIN_LOG_LEVEL=3"), timeout_s=300)
    assert json.loads(answer.splitlines()[-1]) == {"backend": "tensorflow", "same": True}


def test_modules_are_compiled(trainer: Image) -> None:
    """On a read-only root each start would compile them again."""
    code = "import json, trainer.cli as ours, keras, boto3; print(json.dumps([m.__cached__ for m in (ours, keras, boto3)]))"
    for path in json.loads(trainer.python(code).splitlines()[-1]):
        assert trainer.run("test", "-f", path, check=False).returncode == 0, path


@pytest.mark.parametrize(
    ("name", "version", "splits"),
    [
        ("trainer.data.mnist5k:Mnist5k", "1.0.0", {"train": 4000, "test": 1000}),
        ("trainer.data.digits:Digits", "1.0.0", {"train": 960, "test": 240}),
        ("trainer.data.digits:Digits", "1.1.0", {"train": 1438, "test": 359}),
    ],
)
def test_the_sample_datasets_are_prepared_without_a_network(trainer: Image, name: str, version: str, splits: dict[str, int]) -> None:
    answer = trainer.python(PREPARE.format(name=name, version=version), timeout_s=300)
    assert json.loads(answer.splitlines()[-1]) == splits


def test_term_ends_it_at_once(trainer: Image) -> None:
    """A Python without a handler would take the pod's whole grace; a child that does what it should ends with its supervisor."""
    took, code = seconds_to_end(trainer, ["python", "-m", "trainer.supervisor", "--", "sleep", "600"], shows("sleep 600"))
    assert code == 143
    assert took <= MOST_S


def test_term_ends_a_child_in_the_midst_of_tensorflow(trainer: Image) -> None:
    code = "import tensorflow as tf, pathlib; pathlib.Path('ready').touch(); x = tf.random.normal((800, 800))\nwhile True: x = x @ x"
    took, exit_code = seconds_to_end(
        trainer,
        ["python", "-m", "trainer.supervisor", "--", "python", "-c", code],
        lambda name: run("docker", "exec", name, "test", "-f", "/work/ready", check=False).returncode == 0,
    )
    assert exit_code == 143
    assert took <= MOST_S
