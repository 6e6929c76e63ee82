"""Datasets: TFDS builders, TFRecord shard files and the tf.data pipeline that reads them."""
