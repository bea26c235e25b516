"""Images/s of the input pipeline beside the old example's order, in turn.

  python benchmarks/input_pipeline.py --data-dir DATA

The old order is that of TensorFlow's old CIFAR-10 example for the Estimator: parse, crop and mirror
image by image, then shuffle, then batch. The limit beside them is the index gather alone: NumPy
picks batches out of the decoded images.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import commands
import environment
import numpy as np
import tensorflow as tf

from cifar10.core import cli, errors
from cifar10.data import input_pipeline, records


def main() -> None:
  """Measures ours, the old order and the limit in turn, `--pairs` times."""
  parser = _parser()
  flags = parser.parse_args()
  data_set = input_pipeline.Cifar10DataSet(flags.data_dir)
  if flags.batch_size > data_set.num_examples_per_epoch():
    raise errors.InputError(
      f'--batch-size {flags.batch_size} is more than the {data_set.num_examples_per_epoch()} '
      'examples there are; give a smaller one'
    )
  sources: dict[str, Iterator] = {
    'ours': iter(data_set.make_batch(flags.batch_size)),
    'old order': iter(old_order(data_set, flags.batch_size)),
    'index gather (limit)': index_gather(data_set, flags.batch_size),
  }
  rates: dict[str, list[float]] = {name: [] for name in sources}
  for source in sources.values():
    next(source)  # Fills caches and shuffle buffers.
  for pair in range(flags.pairs):
    for name, source in sources.items():
      rates[name].append(_images_per_second(source, flags.batches, flags.batch_size))
    shown = '  '.join(f'{name} {values[-1]:,.0f}' for name, values in rates.items())
    print(f'pair {pair + 1} of {flags.pairs}: {shown} images/s', file=sys.stderr)
  record = {
    **environment.head('input pipeline', parser, flags),
    'images_per_second': commands.medians(rates),
    'ratios': {'ours / old order': commands.ratio(rates['ours'], rates['old order'])},
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _images_per_second(source: Iterator, batches: int, batch_size: int) -> float:
  """Times `batches` batches, after as many untimed ones, which use up what was prefetched."""
  for _ in range(batches):
    next(source)
  start = time.perf_counter()
  for _ in range(batches):
    next(source)
  return batches * batch_size / (time.perf_counter() - start)


def old_order(data_set: input_pipeline.Cifar10DataSet, batch_size: int) -> tf.data.Dataset:
  """Repeat, distort image by image, shuffle in a buffer of 40 % of the split + 3 batches, batch."""
  buffer_size = int(data_set.num_examples_per_epoch() * 0.4) + 3 * batch_size
  return (
    tf.data.TFRecordDataset(data_set.get_filenames())
    .repeat()
    .map(_parse_and_distort_one, num_parallel_calls=batch_size)
    .shuffle(buffer_size)
    .batch(batch_size)
    .prefetch(tf.data.AUTOTUNE)
  )


def _parse_and_distort_one(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """One record -> a distorted float32 image [32, 32, 3] and its label."""
  features: Any = tf.io.parse_single_example(
    serialized,
    {'image': tf.io.FixedLenFeature([], tf.string), 'label': tf.io.FixedLenFeature([], tf.int64)},
  )
  planes = tf.reshape(tf.io.decode_raw(features['image'], tf.uint8), [3, 32, 32])
  image = tf.cast(tf.transpose(planes, [1, 2, 0]), tf.float32)
  image = tf.image.resize_with_crop_or_pad(image, 40, 40)
  image = tf.image.random_crop(image, [32, 32, 3])
  return tf.image.random_flip_left_right(image), tf.cast(features['label'], tf.int32)


def index_gather(data_set: input_pipeline.Cifar10DataSet, batch_size: int) -> Iterator[np.ndarray]:
  """Endless undistorted batches uint8 [batch_size, 32, 32, 3] out of memory."""
  count = data_set.num_examples_per_epoch()
  images = np.concatenate([images.numpy() for images, _ in data_set.one_pass(1000)])
  assert images.shape == (count, records.HEIGHT, records.WIDTH, records.DEPTH)
  rng = np.random.default_rng(0)
  while True:
    order = rng.permutation(count)
    for start in range(0, count - batch_size + 1, batch_size):
      yield images[order[start : start + batch_size]]


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--batch-size', type=commands.count, default=128)
  parser.add_argument('--pairs', type=commands.count, default=5)
  parser.add_argument('--batches', type=commands.count, default=800, help='in each measurement')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
