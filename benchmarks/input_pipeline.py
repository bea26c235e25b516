"""Images/s of the input pipeline beside the old example's order and its peers, in turn.

  python benchmarks/input_pipeline.py --data-dir DATA --torch-python .venv-bench/bin/python

The old order is that of TensorFlow's old CIFAR-10 example for the Estimator: parse, crop and mirror
image by image, then shuffle, then batch. The limit beside them is the index gather alone: NumPy
picks batches out of the decoded images.
PyTorch's DataLoader and tensorpack's DataFlow (loader_peer.py) distort one image at a time, as they
are meant to, from arrays in memory: in one process and with two more; ratios are to the faster.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import commands
import environment
import numpy as np
import peers
import tensorflow as tf

from cifar10.core import cli, errors
from cifar10.data import input_pipeline, records

_PEERS = {'torch': 'PyTorch DataLoader', 'tensorpack': 'tensorpack DataFlow'}


def main() -> None:
  """Measures ours, the old order, the limit and the peers in turn, `--pairs` times."""
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
  versions: dict[str, str] = {}  # The peers'.
  for source in sources.values():
    next(source)  # Fills caches and shuffle buffers.
  with tempfile.TemporaryDirectory() as folder:
    if flags.torch_python:
      peers.export_arrays(flags.data_dir, folder)
    for pair in range(flags.pairs):
      for name, source in sources.items():
        rates[name].append(commands.images_per_second(source, flags.batches, flags.batch_size))
      for loader, name in _PEERS.items() if flags.torch_python else ():
        for workers in (0, 2):
          settings = ['--loader', loader, '--workers', workers, '--batch-size', flags.batch_size]
          result = peers.run_loader(flags.torch_python, folder, settings)
          versions |= result['versions']
          case = f'{name}, {workers or "no"} processes beside its own'
          rates.setdefault(case, []).append(result['images_per_second'])
      shown = '  '.join(f'{name} {values[-1]:,.0f}' for name, values in rates.items())
      print(f'pair {pair + 1} of {flags.pairs}: {shown} images/s', file=sys.stderr)
  medians = commands.medians(rates)
  ratios = [ours / old for ours, old in zip(rates['ours'], rates['old order'])]
  to_peers = {}
  for name in _PEERS.values() if flags.torch_python else ():
    best = max(value for other, value in medians.items() if other.startswith(name))
    to_peers[f'ours / {name}'] = round(medians['ours'] / best, 1)
  record = {
    **environment.head('input pipeline', parser, flags),
    **({'peers': versions} if versions else {}),
    'images_per_second': medians,
    'ratios': {'ours / old order': round(statistics.median(ratios), 2), **to_peers},
    'all_ratios': [round(ratio, 2) for ratio in ratios],
  }
  print(json.dumps(record))


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
  parser.add_argument('--torch-python', help='of the environment that has the peers; or none')
  parser.add_argument('--batches', type=commands.count, default=800, help='in each measurement')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
