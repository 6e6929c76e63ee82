"""From a builder to shard files and a plan: prepare, shard and plan over a real S3, with TFDS for real."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from tests.unit.images.trainer.conftest import MakeContext
from tests.unit.images.trainer.test_code import wheel
from trainer.data import tfrecord
from trainer.errors import DataError, UserError
from trainer.steps import plan, prepare, shard
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.objects import Bucket

pytestmark = pytest.mark.slow  # TensorFlow is imported

BUILDER = """
import numpy as np
import tensorflow_datasets as tfds

class Numbers(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("2.0.0")
    SUPPORTED_VERSIONS = [tfds.core.Version("1.0.0")]

    def __init__(self, *, count=10, **kwargs):
        self.count = count
        super().__init__(**kwargs)

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"x": np.int64}))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(self.count), "test": self._generate_examples(3)}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"x": i / FACTOR}
"""


@pytest.fixture
def user_modules() -> Iterator[None]:
    """Takes what a test put on the path off again."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("numbers_pkg"):
            del sys.modules[name]


def _publish(bucket: Bucket, source: str) -> dict[str, str]:
    data = wheel({"numbers_pkg/__init__.py": "", "numbers_pkg/data.py": source})
    sha256 = hashlib.sha256(data).hexdigest()
    bucket.put(f"code/numbers_pkg/{sha256}.whl", data)
    return {"package": "numbers_pkg", "sha256": sha256, "key": f"code/numbers_pkg/{sha256}.whl"}


def _shard(context: Context) -> None:
    for index in range(context.spec.dataset.shard_tasks):
        shard.run(context, index)


def _values(context: Context, step: str, index: int | None = None) -> dict[str, Any]:
    marker = markers.read(context.data, keys.step_marker(context.spec.run, step, index))
    assert marker is not None
    return dict(marker.values)


def _records(context: Context, name: str, tmp_path: Path) -> list[list[bytes]]:
    """The records of every file that the plan names under ``train`` or ``evaluation``."""
    document = context.data.get_json(keys.plan(context.spec.run))
    assert document is not None
    files = []
    for item in document[name]:
        path = tmp_path / hashlib.sha256(item["key"].encode()).hexdigest()
        path.write_bytes(context.data.get(item["key"]) or b"")
        assert tfrecord.count(path) == item["examples"]
        files.append(list(tfrecord.frames(path)))
    return files


def test_digits_become_shards_and_a_plan(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(dataset__shards=5, dataset__shard_tasks=2, gang__workers=2)
    prepare.run(context)
    assert _values(context, "prepare") == {"splits": {"train": 960, "test": 240}}
    _shard(context)
    assert _values(context, "shard", 0) == {"examples": {"train": 576, "test": 240}}
    assert _values(context, "shard", 1) == {"examples": {"train": 384}}
    plan.run(context)
    assert _values(context, "plan") == {"train_examples": 960, "evaluation_examples": 240, "steps": 90}

    train, evaluation = _records(context, "train", tmp_path), _records(context, "evaluation", tmp_path)
    assert [len(records) for records in train] == [192] * 5
    assert [len(records) for records in evaluation] == [240]
    everything = [record for records in (*train, *evaluation) for record in records]
    # Images may repeat (and do not here): nothing is lost, nothing twice.
    assert len(everything) == len(set(everything)) == 1200

    document = context.data.get_json(keys.plan(context.spec.run))
    assert document is not None
    assert document["workers"] == [[0, 2, 4], [1, 3]]
    manifest = markers.read_whole(context.data, keys.manifest(context.dataset_root))
    assert manifest is not None
    splits = manifest.values["splits"]
    assert {name: split["examples"] for name, split in splits.items()} == {"train": 960, "test": 240}
    assert [manifest.files[i].key for i in splits["train"]["files"]] == [file["key"] for file in document["train"]]
    assert set(manifest.values["features"]["featuresDict"]["features"]) == {"image", "label"}


def test_a_second_run_finds_everything_and_writes_only_its_own_markers(make_context: MakeContext) -> None:
    first = make_context()
    for context in (first, second := make_context(run="digits-mlp-second")):
        prepare.run(context)
        _shard(context)
        plan.run(context)
        if context is first:
            before = {key: modified for key, _, modified in context.data.list("datasets/")}
    assert {key: modified for key, _, modified in second.data.list("datasets/")} == before
    assert _values(second, "plan") == _values(first, "plan")


def test_a_second_run_imports_no_tensorflow(make_context: MakeContext, s3_server: S3Server, tmp_path: Path) -> None:
    context = make_context()
    prepare.run(context)
    _shard(context)
    document = json.dumps(_document(context, run="digits-mlp-second"))
    code = (
        "import sys\nfrom trainer.cli import main\n"
        "codes = [main(['step', 'prepare']), main(['step', 'shard', '--index', '0']), main(['step', 'plan'])]\n"
        "print([int(code) for code in codes], [m for m in ('tensorflow', 'tensorflow_datasets', 'numpy') if m in sys.modules])"
    )
    environ = {"PYTHONPATH": str(Path(plan.__file__).parents[2]), "TRAINYARD_RUN_SPEC": document, **s3_server.environ()}
    done = subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0] []", done.stderr


def _document(context: Context, **changes: Any) -> dict[str, Any]:
    from tests.fixtures.run_spec import run_spec_document

    storage = context.spec.storage
    return run_spec_document(
        storage__endpoint=storage.endpoint, storage__bucket=storage.bucket, storage__models_bucket=storage.models_bucket, **changes
    )


def test_preparing_twice_makes_the_same_bytes(make_context: MakeContext) -> None:
    """Two runs that prepare the same version at the same time must not disturb each other."""
    context = make_context()
    prepare.run(context)
    first = markers.read(context.data, keys.prepared_marker(context.dataset_root))
    context.data.delete(keys.prepared_marker(context.dataset_root))
    prepare.run(make_context())
    second = markers.read(context.data, keys.prepared_marker(context.dataset_root))
    assert first is not None
    assert second is not None
    assert first.files == second.files


def test_a_version_is_what_its_number_says(make_context: MakeContext) -> None:
    older = make_context(dataset__version="1.0.0")
    newer = make_context(dataset__version="1.1.0", run="digits-mlp-newer")
    prepare.run(older)
    prepare.run(newer)
    assert _values(older, "prepare") == {"splits": {"train": 960, "test": 240}}
    assert _values(newer, "prepare") == {"splits": {"train": 1438, "test": 359}}


def test_mnist5k_is_split_evenly_over_the_digits(make_context: MakeContext, tmp_path: Path) -> None:
    changes = {"dataset__name": "mnist5k", "dataset__builder": "trainer.data.mnist5k:Mnist5k", "dataset__shards": 4}
    context = make_context(**changes)
    prepare.run(context)
    _shard(context)
    plan.run(context)
    from collections import Counter

    from trainer.data.reading import read_shards

    manifest = markers.read(context.data, keys.manifest(context.dataset_root))
    document = context.data.get_json(keys.plan(context.spec.run))
    assert manifest is not None
    assert document is not None
    for name, each in (("train", 400), ("evaluation", 100)):
        paths = []
        for item in document[name]:
            paths.append(tmp_path / item["key"].rsplit("/", 1)[-1])
            paths[-1].write_bytes(context.data.get(item["key"]) or b"")
        batches = list(read_shards([str(path) for path in paths], manifest.values["features"], 500))
        assert batches[0]["image"].shape == (500, 28, 28, 1)
        assert batches[0]["image"].dtype == "uint8"
        assert Counter(int(label) for batch in batches for label in batch["label"]) == dict.fromkeys(range(10), each)


def test_a_part_of_a_split_can_be_a_split(make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(dataset__train_split="train[:50%]", dataset__evaluation_split="train[50%:]")
    prepare.run(context)
    _shard(context)
    plan.run(context)
    train, evaluation = _records(context, "train", tmp_path), _records(context, "evaluation", tmp_path)
    assert [len(records) for records in (*train, *evaluation)] == [240, 240, 480]
    assert len({record for records in (*train, *evaluation) for record in records}) == 960


def test_evaluating_on_the_train_split_is_possible(make_context: MakeContext) -> None:
    context = make_context(dataset__evaluation_split="train")
    prepare.run(context)
    _shard(context)
    plan.run(context)
    assert _values(context, "plan") == {"train_examples": 960, "evaluation_examples": 960, "steps": 90}


@pytest.mark.usefixtures("user_modules")
def test_a_builder_of_the_users_package(make_context: MakeContext) -> None:
    bucket = make_context().data
    changes: dict[str, Any] = {"dataset__name": "numbers", "dataset__builder": "numbers_pkg.data:Numbers"}
    code = _publish(bucket, BUILDER.replace("/ FACTOR", ""))
    context = make_context(**changes, code=code, dataset__config={"count": 20})
    prepare.run(context)
    assert _values(context, "prepare")["splits"] == {"train": 20, "test": 3}
    _shard(context)
    plan.run(context)
    # Its records are read without it.
    manifest = markers.read(context.data, keys.manifest(context.dataset_root))
    assert manifest is not None
    assert list(manifest.values["features"]["featuresDict"]["features"]) == ["x"]
    # Other code, other data: the step does its work again.
    assert prepare.inputs(context.spec) != prepare.inputs(
        make_context(**changes, code=_publish(bucket, BUILDER), dataset__config={"count": 20}).spec
    )


@pytest.mark.usefixtures("user_modules")
def test_a_builder_that_fails_is_told_with_file_and_line(make_context: MakeContext) -> None:
    code = _publish(make_context().data, BUILDER.replace("FACTOR", "0"))
    context = make_context(dataset__name="numbers", dataset__builder="numbers_pkg.data:Numbers", code=code)
    with pytest.raises(DataError) as caught:
        prepare.run(context)
    said = "dataset numbers 1.0.0 cannot be built by numbers_pkg.data:Numbers: numbers_pkg/data.py:21: ZeroDivisionError: division by zero"
    assert str(caught.value) == said
    assert markers.read(context.data, keys.prepared_marker(context.dataset_root)) is None


@pytest.mark.usefixtures("user_modules")
@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"dataset__version": "3.0.0"}, DataError, "does not know version 3.0.0; it knows 2.0.0, 1.0.0"),
        ({"dataset__builder": "numbers_pkg.data:tfds"}, UserError, "is not a tensorflow_datasets builder class"),
        ({"dataset__builder": "numbers_pkg.data:Nombres"}, UserError, "module 'numbers_pkg.data' has no 'Nombres'; it defines: Numbers"),
        ({"dataset__config": {"colour": 1}}, UserError, "cannot be made with config {'colour': 1}"),
        (
            {"dataset__train_split": "trian"},
            DataError,
            "dataset.train_split: dataset numbers has no split 'trian'; it has train, test",
        ),
        (
            {"dataset__evaluation_split": "train[:0%]"},
            DataError,
            "dataset.evaluation_split: split 'train[:0%]' of dataset numbers is empty",
        ),
    ],
)
def test_what_a_dataset_cannot_be(make_context: MakeContext, changes: dict[str, Any], kind: type[Exception], said: str) -> None:
    code = _publish(make_context().data, BUILDER.replace("/ FACTOR", ""))
    context = make_context(**{"dataset__name": "numbers", "dataset__builder": "numbers_pkg.data:Numbers", "code": code, **changes})
    with pytest.raises(kind) as caught:
        prepare.run(context)
    assert said in str(caught.value)
    assert list(context.data.list("datasets/")) == []


def test_more_shards_than_examples_is_said(make_context: MakeContext) -> None:
    context = make_context(dataset__shards=961)
    prepare.run(context)
    with pytest.raises(UserError, match=r"has 960 examples for 961 shards; set shards to at most 960"):
        shard.run(context, 0)


def test_a_shard_task_that_does_not_exist_is_said(make_context: MakeContext) -> None:
    with pytest.raises(UserError, match="index 1: this run has 1 shard tasks, 0 to 0"):
        shard.run(make_context(), 1)


def test_steps_out_of_order_name_the_one_that_is_missing(make_context: MakeContext) -> None:
    context = make_context(dataset__shard_tasks=2)
    with pytest.raises(DataError, match="prepare has not ended well"):
        shard.run(context, 0)
    prepare.run(context)
    shard.run(context, 0)
    with pytest.raises(DataError, match="shard 1 has not ended well"):
        plan.run(context)


def test_a_lost_shard_file_is_made_again(make_context: MakeContext) -> None:
    context = make_context()
    prepare.run(context)
    _shard(context)
    plan.run(context)
    lost = keys.shard_file(context.dataset_root, "train", 1, 2)
    before = context.data.get(lost)
    context.data.delete(lost)
    with pytest.raises(DataError, match="is not whole"):
        plan.run(context)
    _shard(make_context())
    assert context.data.get(lost) == before
    plan.run(context)


def test_prepared_bytes_that_changed_are_never_sharded(make_context: MakeContext) -> None:
    context = make_context()
    prepare.run(context)
    marker = markers.read(context.data, keys.prepared_marker(context.dataset_root))
    assert marker is not None
    train = next(file for file in marker.files if "train" in file.key)
    data = bytearray(context.data.get(train.key) or b"")
    data[1000] ^= 1
    context.data.put(train.key, bytes(data))
    with pytest.raises(DataError, match="is not what was recorded"):
        shard.run(context, 0)


def test_a_worker_too_many_has_no_plan(make_context: MakeContext) -> None:
    context = make_context(gang__workers=3)
    prepare.run(context)
    _shard(context)
    with pytest.raises(UserError, match="use at most 2 workers"):
        plan.run(context)
    assert context.data.get(keys.plan(context.spec.run)) is None


class Killed(BaseException):
    """Stands for the process' end: nothing of ours catches it."""


@pytest.mark.parametrize("step", ["prepare", "shard", "plan"])
def test_killed_at_any_put_a_step_leaves_no_marker_and_can_be_repeated(make_context: MakeContext, step: str) -> None:
    steps: dict[str, Any] = {"prepare": prepare.run, "shard": lambda context: shard.run(context, 0), "plan": plan.run}
    names = list(steps)[: list(steps).index(step)]
    reached = 0
    for k in range(1, 100):
        # A layout of its own: nothing is there of the try before.
        changes = {"run": f"digits-mlp-{k}", "dataset__layout": f"layout{k}"}
        context = make_context(**changes)
        for name in names:
            steps[name](context)
        puts = 0

        def die(k: int = k, **_: Any) -> None:
            nonlocal puts
            puts += 1
            if puts == k:
                raise Killed

        events = context.data.client.meta.events
        events.register("before-call.s3.PutObject", die)
        try:
            steps[step](context)
        except Killed:
            reached += 1
        finally:
            events.unregister("before-call.s3.PutObject", die)
        key = keys.step_marker(context.spec.run, step, 0 if step == "shard" else None)
        if puts < k:
            break
        assert markers.read(context.data, key) is None
        steps[step](make_context(**changes))
        assert markers.read_whole(context.data, key) is not None
    # Files, the dataset's marker and the run's: prepare 4 + 2, shard 3 + 2; plan: manifest, plan, marker.
    assert reached == {"prepare": 6, "shard": 5, "plan": 3}[step]
