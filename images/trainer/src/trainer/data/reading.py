"""Shard files to ``tf.data``: how the engine and ``evaluate`` read examples.

The records are TFDS' own, so they are decoded by the features that the manifest carries (``values["features"]``); no dataset builder
and no user code is needed to read them. Paths may be relative: the pipeline opens them in the process where it runs, which for a
dataset function traced on the chief is the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import tensorflow as tf

SHUFFLE_BUFFER: Final = 4096
"""Examples in the shuffle buffer. Records were put in random order when they were prepared; this changes the order between epochs."""


def decoder(features: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A function from a serialized record to its example (a dict of tensors), usable inside ``tf.data``.

    ``features`` is the document TFDS writes as ``features.json``.
    """
    import tensorflow_datasets as tfds

    return tfds.features.FeatureConnector.from_json(features).deserialize_example


def read_shards(
    files: Sequence[str],
    features: Mapping[str, Any],
    batch_size: int,
    *,
    seed: int | None = None,
    repeat: bool = False,
    transform: Callable[[Any], Any] | None = None,
    threads: int = 1,
) -> tf.data.Dataset:
    """Batches of the examples in ``files``.

    With ``seed`` the order of files and examples is shuffled, anew each epoch and reproducibly; without, it is that of the files.
    With ``repeat`` the batches go on for ever and across epochs (all of them full); without, the last one may be smaller.
    ``transform`` maps one example (before batching), e.g. to ``(x, y)``.
    """
    import tensorflow as tf

    if seed is None:
        records = tf.data.TFRecordDataset(list(files))
    else:
        names = tf.data.Dataset.from_tensor_slices(list(files)).shuffle(len(files), seed=seed, reshuffle_each_iteration=True)
        records = names.interleave(tf.data.TFRecordDataset, cycle_length=min(4, len(files)))
        records = records.shuffle(SHUFFLE_BUFFER, seed=seed, reshuffle_each_iteration=True)
    if repeat:
        records = records.repeat()
    examples = records.map(decoder(features), num_parallel_calls=threads, deterministic=True)
    if transform is not None:
        examples = examples.map(transform, num_parallel_calls=threads, deterministic=True)
    options = tf.data.Options()
    # TensorFlow counts the host's cores, not the pod's limit.
    options.threading.private_threadpool_size = threads
    return examples.batch(batch_size).prefetch(2).with_options(options)
