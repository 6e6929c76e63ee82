"""A gang of real processes over a real S3: what ends well, what is lost and comes back, what ends badly and why."""

from __future__ import annotations

import hashlib
import io
import os
import re
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fixtures.s3 import S3Server
from tests.unit.images.trainer.engine.gang import DEADLINE_S, Gang, Run
from trainer.exit_codes import ExitCode
from trainer.storage import keys, markers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Make = Callable[..., Run]


@pytest.fixture
def make_run(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A prepared run on the digits with one PS and two workers, which may be changed."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)

    monkeypatch.syspath_prepend(str(tmp_path))  # so that what a step adds for the user's package is taken back

    def make(wheel: bytes | None = None, **changes: Any) -> Run:
        run = Run(s3_server, tmp_path, **{"gang__workers": 2, "training__learning_rate": 0.003, **changes})
        if wheel is not None:
            run.data.put(run.document["code"]["key"], wheel)
        return run.prepare()

    return make


def progress(run: Run) -> int:
    return int((run.data.get_json(keys.progress(run.context.spec.run)) or {"step": 0})["step"])


def wait_for_step(run: Run, gang: Gang, step: int) -> None:
    """Until a checkpoint at or after ``step`` is whole."""
    end = time.monotonic() + DEADLINE_S
    root = keys.checkpoints(run.context.spec.run)
    while True:
        saved = [int(key.split("/")[-2]) for key, _, _ in run.data.list(root) if key.endswith("marker.json")]
        if max(saved, default=0) >= step:
            return
        code = gang.processes["chief-0"].poll()
        assert code is None, f"the chief ended with {code} before step {step}:\n{gang.log()[-4000:]}"
        assert time.monotonic() < end, f"no checkpoint at step {step} in time:\n{gang.log()[-4000:]}"
        time.sleep(0.1)


def kill_child(gang: Gang, name: str) -> None:
    """SIGKILL to the command below a replica's supervisor, as the kernel's memory killer would."""
    for child in psutil.Process(gang.processes[name].pid).children():
        child.send_signal(signal.SIGKILL)


def test_a_good_end(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(training__epochs=15)
    spec = run.context.spec
    with Gang(run).start() as gang:
        assert gang.wait() == 0, gang.log()
        ended = time.monotonic()
        assert [gang.wait(name, 30) for name in gang.names[1:]] == [0, 0, 0]
        # The bound of the design is 2 s; the machine under test may be busy.
        assert time.monotonic() - ended < 10
        log = gang.log()
    assert re.search(r"^step 450/450 epoch 15\.0 loss \d\.\d{4} \d+ examples/s$", log, re.MULTILINE), log
    assert progress(run) == 450
    result = (gang.folder("chief-0") / "result.json").read_text()
    assert '"checkpoint_step": 450' in result
    # No shared filesystem: each worker has its share, the chief and the PS have none.
    assert [len(list(gang.folder(name).glob("shards/*"))) for name in gang.names] == [0, 0, 1, 1]

    from trainer.steps import evaluate

    markers.write(run.data, keys.step_marker(spec.run, "train"), "train", "", values={"checkpoint_step": 450})
    monkeypatch.chdir(run.folder)
    evaluate.run(run.context)
    values = (run.data.get_json(keys.step_marker(spec.run, "evaluate")) or {})["values"]
    assert values["metrics"]["accuracy"] > 0.85


def test_a_worker_a_ps_and_the_chief_are_killed_and_training_reaches_its_end(make_run: Make) -> None:
    total = 3000
    run = make_run(training__epochs=None, training__steps=total, training__checkpoint_every_steps=100)
    with Gang(run, supervised=True).start() as gang:
        wait_for_step(run, gang, 100)
        kill_child(gang, "worker-1")
        wait_for_step(run, gang, 300)  # it went on with the other one
        kill_child(gang, "ps-0")
        gang.wait_log("going on from step")
        gang.wait_log("worker-1 serves", "worker-1")
        kill_child(gang, "chief-0")
        assert gang.wait() == 0, gang.log()
        ended = time.monotonic()
        assert [gang.wait(name, 30) for name in gang.names[1:]] == [0, 0, 0], gang.log("ps-0")
        assert time.monotonic() - ended < 15
        log, worker = gang.log(), gang.log("worker-1")
    resumed = [int(step) for step in re.findall(rf"going on from step (\d+) of {total}", log)]
    assert len(resumed) == 2, log
    assert 300 <= resumed[0] <= resumed[1] < total
    assert re.findall(r"a parameter server is lost \((\S+) ", log) == ["ps-0:"], "a killed worker costs no new start"
    assert "worker-1 is lost" in log
    assert worker.count("worker-1 serves") == 2, "restarted once, in place, and it outlived the chief's absence"
    result = run.data.get_json(keys.generation_result(run.context.spec.run, 1))
    assert result is not None
    assert (result["exit_code"], result["checkpoint_step"]) == (0, total)
    # TensorFlow's pages about each loss are not for people.
    assert log.count("Additional GRPC error information") == 0, log


def test_a_chief_that_does_not_come_back_leaves_nothing_and_the_next_generation_goes_on(make_run: Make) -> None:
    run = make_run(training__epochs=None, training__steps=1500, training__checkpoint_every_steps=100)
    with Gang(run).start() as gang:
        wait_for_step(run, gang, 100)
        gang.kill("chief-0")
        killed = time.monotonic()
        assert {gang.wait(name, 60) for name in gang.names[1:]} == {ExitCode.CHIEF_GONE}
        assert time.monotonic() - killed < 30
        assert "has been away for" in gang.log("ps-0")
    run.set_generation(2)
    with Gang(run, generation=2).start() as gang:
        assert gang.wait() == 0, gang.log()
        found = re.search(r"going on from step (\d+) of 1500", gang.log())
    assert found
    assert int(found.group(1)) >= 100


def test_a_superseded_chief_writes_nothing_more(make_run: Make) -> None:
    run = make_run(training__epochs=None, training__steps=100_000, training__checkpoint_every_steps=200)
    with Gang(run).start() as gang:
        wait_for_step(run, gang, 200)
        run.set_generation(2)
        assert gang.wait() == ExitCode.SUPERSEDED
        before = sorted(run.data.list(keys.checkpoints(run.context.spec.run)))
        assert "generation 2 holds the run, this is generation 1" in gang.log()
        assert not (gang.folder("chief-0") / "result.json").exists()
        assert {gang.wait(name, 60) for name in gang.names[1:]} == {ExitCode.CHIEF_GONE}
        assert sorted(run.data.list(keys.checkpoints(run.context.spec.run))) == before


def test_a_loss_that_is_not_finite_ends_the_run_for_good(make_run: Make) -> None:
    run = make_run(training__optimizer="sgd", training__learning_rate=1e30, gang__workers=1)
    with Gang(run).start() as gang:
        assert gang.wait() == ExitCode.DIVERGED
        assert re.search(r"^error: the loss is (nan|inf|-inf) within steps", gang.log(), re.MULTILINE), gang.log()
    assert list(run.data.list(keys.checkpoints(run.context.spec.run))) == []


def test_a_published_model_that_fails_while_computing_ends_the_run_as_its_owners_mistake(make_run: Make) -> None:
    """Its shapes are right, so tracing finds nothing; the worker that computes it has none of its code."""
    source = (
        "import keras, tensorflow as tf\n"
        "class Strict(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        tf.debugging.assert_less(x, 0.5, message='brighter than I can bear')\n"
        "        return x\n"
        "def build(config):\n"
        "    return keras.Sequential([keras.Input((8, 8, 1)), Strict(), keras.layers.Flatten(), keras.layers.Dense(10)])\n"
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("strict/__init__.py", "")
        archive.writestr("strict/model.py", source)
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    code = {"package": "strict", "sha256": digest, "key": f"code/strict/{digest}.whl"}
    run = make_run(packed.getvalue(), code=code, model={"build": "strict.model:build", "config": {}})
    with Gang(run).start() as gang:
        assert gang.wait() == ExitCode.USER_ERROR, gang.log()
        errors = [line for line in gang.log().splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "strict.model:build: the model cannot compute a batch" in errors[0]
    assert "strict/model.py:4: InvalidArgumentError: " in errors[0]
    assert "brighter than I can bear" in errors[0]


def test_peers_that_do_not_come_are_named(make_run: Make) -> None:
    run = make_run(training__start_deadline_s=1)
    with Gang(run).start("chief-0") as gang:
        assert gang.wait() == ExitCode.PEERS_MISSING
        error = next(line for line in gang.log().splitlines() if line.startswith("error:"))
    assert "3 of 3 replicas did not answer in time: ps-0 (127.0.0.1:" in error
    assert "worker-1 (" in error


def test_a_model_that_cannot_be_built_ends_before_anybody_is_waited_for(make_run: Make) -> None:
    run = make_run(model__config={"hiden": [3]})
    with Gang(run).start("chief-0") as gang:
        assert gang.wait() == ExitCode.USER_ERROR
        error = next(line for line in gang.log().splitlines() if line.startswith("error:"))
    assert "has no key 'hiden': it knows classes, dropout, hidden, input_shape" in error


def test_a_workers_damaged_shard_ends_it_before_it_serves(make_run: Make) -> None:
    run = make_run()
    plan = run.data.get_json(keys.plan(run.context.spec.run))
    assert plan is not None
    file = plan["train"][plan["workers"][0][0]]
    run.data.put(file["key"], os.urandom(file["size"]))
    with Gang(run).start("worker-0") as gang:
        assert gang.wait("worker-0") == ExitCode.DATA_ERROR
        assert "is not what was recorded" in gang.log("worker-0")
        assert "serves" not in gang.log("worker-0")
