"""Step ``evaluate`` on real digits: metrics of the last checkpoint, and a SavedModel that a fresh process can use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from tests.unit.images.trainer.engine.gang import Run
from trainer.engine import optimizers, proof
from trainer.engine import plan as plans
from trainer.engine.checkpoints import Checkpoints
from trainer.engine.generation import Generation
from trainer.errors import DataError
from trainer.steps import evaluate
from trainer.storage import keys, markers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environ().items():
            patch.setenv(name, value)
        yield Run(s3_server, tmp_path_factory.mktemp("run"), training__epochs=1).prepare()


@pytest.fixture(scope="module", autouse=True)
def trained(run: Run) -> Any:
    """A model trained a little in this process, saved as a gang saves it: with optimizer and step."""
    import tensorflow as tf

    from trainer.data.reading import read_shards

    spec = run.context.spec
    plan = plans.load(run.context)
    proved = proof.prove(spec, plan.features)
    for index, file in enumerate(plan.train):
        run.data.download(file, run.folder / "train" / str(index))
    names = [str(run.folder / "train" / str(index)) for index in range(len(plan.train))]
    optimizer = optimizers.make("adam", 0.01)
    optimizer.build(proved.model.trainable_variables)
    from trainer.engine import training_step

    step = tf.function(training_step.make(proved.model, optimizer, proved.objective))
    for x, y in read_shards(names, plan.features, 32, seed=1, repeat=True, transform=proved.records.transform).take(100):
        step(x, y)
    saved = tf.train.Checkpoint(model=proved.model, optimizer=optimizer, step=tf.Variable(100, dtype=tf.int64))
    Checkpoints(run.data, spec, Generation(run.data, spec.run, 1), run.folder / "ck", print).save(100, saved.write, {"loss": 0.1})
    train_marker(run, 100)
    return proved


def train_marker(run: Run, step: int | None) -> None:
    """What the gang's operator writes at a good end."""
    values = {"loss": 0.1} | ({} if step is None else {"checkpoint_step": step})
    markers.write(run.data, keys.step_marker(run.context.spec.run, "train"), "train", "inputs", values=values)


def marker(run: Run) -> markers.Marker:
    found = markers.read_whole(run.data, keys.step_marker(run.context.spec.run, "evaluate"))
    assert found is not None
    return found


def test_metrics_name_the_last_checkpoint_and_cover_the_whole_split(run: Run) -> None:
    evaluate.run(run.context)
    found = marker(run)
    assert found.values["checkpoint_step"] == 100
    assert found.values["examples"] == 240
    assert 0.75 < found.values["metrics"]["accuracy"] <= 1
    assert set(found.values["metrics"]) == {"accuracy", "loss"}
    saved = markers.read_whole(run.data, keys.saved_model_marker(run.context.spec.run))
    assert saved is not None
    names = {file.key.removeprefix(keys.saved_model(run.context.spec.run)) for file in saved.files}
    assert {"saved_model.pb", "variables/variables.index"} <= names


def test_a_fresh_process_with_plain_tensorflow_reaches_the_same_accuracy_on_raw_records(run: Run, tmp_path: Path) -> None:
    evaluate.run(run.context)
    root = keys.saved_model(run.context.spec.run)
    for file in marker(run).files:
        run.data.download(file, tmp_path / "model" / file.key.removeprefix(root))
    shard = run.data.download(plans.load(run.context).evaluation[0], tmp_path / "test.tfrecord")
    program = """
import sys, json
import tensorflow as tf
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
described = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
records = [tf.io.parse_single_example(record, described) for record in tf.data.TFRecordDataset(sys.argv[2])]
images = tf.stack([tf.io.decode_png(record["image"]) for record in records])
found = serve(image=images)
right = tf.reduce_sum(tf.cast(found["class"] == tf.stack([record["label"] for record in records]), tf.int32))
total = tf.reduce_sum(found["probabilities"], -1)
print(json.dumps([int(right) / len(records), float(tf.reduce_max(tf.abs(total - 1))), "trainer" in sys.modules]))
"""
    environ = {"PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", program, str(tmp_path / "model"), str(shard)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy, off, ours = json.loads(done.stdout)
    assert accuracy == pytest.approx(marker(run).values["metrics"]["accuracy"])
    assert off < 1e-5
    assert not ours


def test_a_second_run_does_nothing_and_a_lost_file_is_made_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate.run(run.context)
    first = marker(run)
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "_evaluate", lambda *args: pytest.fail("it was done"))
        evaluate.run(run.context)
    run.data.delete(keys.saved_model(run.context.spec.run) + "saved_model.pb")
    evaluate.run(run.context)
    assert marker(run).values == first.values
    assert marker(run).ended != first.ended


def test_without_training_there_is_nothing_to_evaluate(run: Run) -> None:
    for step, message in ((None, "names no checkpoint"), (777, "0000000777/marker.json is not there")):
        train_marker(run, step)
        try:
            with pytest.raises(DataError, match=message):
                evaluate.run(run.context)
        finally:
            train_marker(run, 100)


def test_a_checkpoint_of_another_model_is_refused(run: Run, trained: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    from trainer.engine import evaluation
    from trainer.models import mlp

    tf.train.Checkpoint(model=trained.model).write(str(tmp_path / "weights"))
    with pytest.raises(DataError, match="not one of this model"):
        evaluation.restore(mlp.build({"hidden": [64, 32]}), str(tmp_path / "weights"))


def test_an_export_that_answers_otherwise_than_the_model_is_refused(run: Run, trained: Any, tmp_path: Path) -> None:
    import numpy as np

    from trainer.engine import saved_model
    from trainer.errors import UserError

    saved_model.export(trained, tmp_path / "model")
    raw = {"image": np.zeros((2, 8, 8, 1), np.uint8), "label": np.zeros(2, np.int64)}
    x = trained.records.batch(raw)
    saved_model.prove(trained, tmp_path / "model", raw, trained.model(x, training=False))
    with pytest.raises(UserError, match="gives other outputs"):
        saved_model.prove(trained, tmp_path / "model", raw, trained.model(x, training=False) + np.arange(10))
