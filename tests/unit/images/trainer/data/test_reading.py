from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainer.data.reading import read_shards

pytestmark = pytest.mark.slow  # TensorFlow is imported

FILES, EACH = 3, 20


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    """Three files of twenty records, numbered through, as TFDS writes them."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict({"x": tfds.features.Scalar(tf.int64)})
    folder = tmp_path_factory.mktemp("shards")
    paths = [str(folder / f"{j}.tfrecord") for j in range(FILES)]
    for j, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(EACH):
                writer.write(features.serialize_example({"x": j * EACH + i}))
    return paths, features.to_json()


def _numbers(dataset: Any, batches: int | None = None) -> list[list[int]]:
    return [[int(x) for x in batch["x"]] for batch in (dataset if batches is None else dataset.take(batches))]


def test_without_a_seed_the_order_is_that_of_the_files(shards: tuple[list[str], Any]) -> None:
    read = _numbers(read_shards(*shards, 16))
    assert [len(batch) for batch in read] == [16, 16, 16, 12]
    assert [x for batch in read for x in batch] == list(range(60))


def test_with_a_seed_each_epoch_is_whole_other_and_reproducible(shards: tuple[list[str], Any]) -> None:
    dataset = read_shards(*shards, 60, seed=3)
    first, second = _numbers(dataset)[0], _numbers(dataset)[0]
    assert sorted(first) == sorted(second) == list(range(60))
    assert first != second
    assert first != list(range(60))
    assert _numbers(read_shards(*shards, 60, seed=3))[0] == first
    assert _numbers(read_shards(*shards, 60, seed=4))[0] != first


def test_repeated_batches_are_full_and_every_epoch_is_whole(shards: tuple[list[str], Any]) -> None:
    read = _numbers(read_shards(*shards, 16, seed=1, repeat=True), 15)
    assert {len(batch) for batch in read} == {16}
    numbers = [x for batch in read for x in batch]
    for epoch in range(4):
        assert sorted(numbers[epoch * 60 : (epoch + 1) * 60]) == list(range(60))


def test_a_transform_sees_one_example(shards: tuple[list[str], Any]) -> None:
    dataset = read_shards(*shards, 60, transform=lambda example: (example["x"] * 2, example["x"].shape.rank))
    doubled, ranks = next(iter(dataset))
    assert [int(x) for x in doubled] == [2 * x for x in range(60)]
    assert {int(rank) for rank in ranks} == {0}


def test_relative_paths_are_opened_where_the_pipeline_runs(shards: tuple[list[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    paths, features = shards
    monkeypatch.chdir(Path(paths[0]).parent)
    assert len(_numbers(read_shards([os.path.basename(path) for path in paths], features, 60))[0]) == 60
