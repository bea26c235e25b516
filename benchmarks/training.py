"""Images/s of the whole program beside a bare session loop and its peers, in turn, in one run.

  python benchmarks/training.py --data-dir DATA --torch-python .venv-bench/bin/python

- program: the Estimator with the hooks and the input pipeline that cifar10_main.py gives it;
- bare: a session loop over the same graph on a constant batch;
- convolutions (limit): each convolution run alone, as if all else took no time;
- keras: `tf.keras` `fit` on the same layers (keras_peer.py), fed by the same batches;
- torch, torch compiled: PyTorch's twin (torch_resnet.py), channels_last, autocast for bfloat16,
  whose batches come out of memory.

Each measurement is a process of its own, so that none inherits another's threads or memory.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# The program lies beside this folder, and is not installed.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import commands
import convolutions
import environment
import keras_peer
import networks
import numpy as np
import peers
import tensorflow as tf

from cifar10.data import dataset
from cifar10.data.data_set import CIFAR10
from cifar10.options.hparams import HParams, from_recipe
from cifar10.options.run_options import RunOptions
from cifar10.platform import errors
from cifar10.platform.estimator import tf_estimator
from cifar10.training import job, model_fn, placement, process, towers


class StepTimes(tf.compat.v1.train.SessionRunHook):
  """When each step ended, in seconds."""

  def __init__(self):
    self.times: list[float] = []

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.times.append(time.perf_counter())


class KerasTimes(tf.keras.callbacks.Callback):
  """When each batch ended, in seconds."""

  def __init__(self):
    super().__init__()
    self.times: list[float] = []

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    self.times.append(time.perf_counter())


def main() -> None:
  """Runs the variants in turn, each in its own process; prints medians and ratios."""
  parser = _parser()
  flags = parser.parse_args()
  tf.get_logger().setLevel('ERROR')
  if flags.variant:
    print(json.dumps(_measure(flags)))
    return
  others = [name for name in flags.beside if name not in _TORCH or flags.torch_python]
  rates: dict[str, list[float]] = {}
  torch_version = ''
  with tempfile.TemporaryDirectory() as folder:
    if flags.torch_python:
      peers.export_arrays(flags.data_dir, folder)
    for pair in range(flags.pairs):
      for dtype in flags.dtypes:
        for variant in ('program', *others):
          if variant in _TORCH:
            rate, torch_version = _in_torch(flags, folder, variant, dtype)
          else:
            rate = _in_a_process(flags, variant, dtype)
          rates.setdefault(f'{variant} {dtype}', []).append(rate)
          print(f'pair {pair + 1}: {variant} {dtype} {rate:,.0f} images/s', file=sys.stderr)
  ratios = {}
  for dtype in flags.dtypes:
    for other in others:
      pairs = zip(rates[f'program {dtype}'], rates[f'{other} {dtype}'])
      ratio = statistics.median(program / peer for program, peer in pairs)
      ratios[f'program / {other}, {dtype}'] = round(ratio, 3)
  record = {
    'name': 'training',
    'command': commands.command_line(parser, flags),
    'pairs': flags.pairs,
    **environment.describe(),
    **({'torch': torch_version} if torch_version else {}),
    'images_per_second': {name: statistics.median(values) for name, values in rates.items()},
    'ratios': ratios,
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _in_a_process(flags: argparse.Namespace, variant: str, dtype: str) -> float:
  command = [sys.executable, os.path.abspath(__file__), '--variant', variant, '--dtypes', dtype]
  for name in ('data_dir', 'network', 'batch_size', 'warm_up', 'steps'):
    command += [f'--{name.replace("_", "-")}', str(getattr(flags, name))]
  return commands.last_line(command)


def _in_torch(
  flags: argparse.Namespace, folder: str, variant: str, dtype: str
) -> tuple[float, str]:
  """Images/s, and PyTorch's version."""
  settings = ['--network', flags.network, '--batch-size', flags.batch_size, '--dtype', dtype]
  settings += ['--warm-up', flags.warm_up, '--steps', flags.steps, *_TORCH[variant]]
  result = peers.run_torch(flags.torch_python, 'resnet', folder, settings)
  return result['images_per_second'], result['torch']


def _measure(flags: argparse.Namespace) -> float:
  """One variant's images/s."""
  given = {
    **networks.options(flags.network),
    'train_batch_size': flags.batch_size,
    'dtype': flags.dtypes[0],
    'train_steps': flags.warm_up + flags.steps,
  }
  return VARIANTS[flags.variant](flags.data_dir, from_recipe('classic', given), flags.warm_up)


def _images_per_second(times: list[float], hparams: HParams, warm_up: int) -> float:
  """From the moments when steps ended, those of the warm-up left out."""
  measured = times[warm_up - 1 :]
  return (len(measured) - 1) * hparams.train_batch_size / (measured[-1] - measured[0])


def _program(data_dir: str, hparams: HParams, warm_up: int) -> float:
  """What cifar10_main.py runs, with one more hook."""
  step_times = StepTimes()
  with tempfile.TemporaryDirectory() as folder:
    options = RunOptions(job_dir=folder, data_dir=data_dir, num_gpus=0)
    job.Job(process.Process(hparams, options)).train([step_times])
  return _images_per_second(step_times.times, hparams, warm_up)


def _bare(data_dir: str, hparams: HParams, warm_up: int) -> float:
  """The same graph on a constant batch, and nothing but its train op."""
  batch = _first_batch(data_dir, hparams)
  with tf.Graph().as_default():
    train_op = _train_op(hparams, *batch)
    times = []
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      for _ in range(hparams.train_steps):
        session.run(train_op)
        times.append(time.perf_counter())
  return _images_per_second(times, hparams, warm_up)


def _convolutions(data_dir: str, hparams: HParams, warm_up: int) -> float:
  del warm_up  # It has its own.
  batch = _first_batch(data_dir, hparams)
  with tf.Graph().as_default():
    train_op = _train_op(hparams, *batch)
  return hparams.train_batch_size / convolutions.seconds(train_op)


def _first_batch(data_dir: str, hparams: HParams) -> tuple[np.ndarray, np.ndarray]:
  images, labels = next(iter(dataset.Cifar10DataSet(data_dir).make_batch(hparams.train_batch_size)))
  return images.numpy(), labels.numpy()


def _train_op(hparams: HParams, images: np.ndarray, labels: np.ndarray) -> tf.Operation:
  """Of the program's graph, in the default one, on a constant batch."""
  where = placement.Placement(towers.tower_devices(0, 1), 'CPU', 0, 'channels_last')
  tf.compat.v1.train.get_or_create_global_step()
  config = tf_estimator.RunConfig(model_dir=tempfile.gettempdir())
  build = model_fn.get_model_fn(hparams, where, CIFAR10, examples_per_epoch=40_000)
  shards = (tf.constant(images),), (tf.constant(labels),)
  return build(*shards, tf_estimator.ModeKeys.TRAIN, config).train_op


def _keras(data_dir: str, hparams: HParams, warm_up: int) -> float:
  """`fit` on the same layers and loss, fed by the same batches, normalised in the pipeline."""
  if hparams.dtype == 'bfloat16':
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
  network = keras_peer.network(hparams)
  network.compile(
    tf.keras.optimizers.SGD(hparams.learning_rate, momentum=hparams.momentum),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=['accuracy'],
  )
  batches = dataset.Cifar10DataSet(data_dir).make_batch(hparams.train_batch_size)
  batches = batches.map(lambda images, labels: (dataset.normalise(images, tf.float32), labels))
  callback = KerasTimes()
  network.fit(
    batches.prefetch(tf.data.AUTOTUNE),
    steps_per_epoch=hparams.train_steps,
    epochs=1,
    verbose=0,
    callbacks=[callback],
  )
  return _images_per_second(callback.times, hparams, warm_up)


_TORCH = {'torch': [], 'torch compiled': ['--compile']}
VARIANTS: dict[str, Callable[[str, HParams, int], float]] = {
  'program': _program,
  'bare': _bare,
  'convolutions (limit)': _convolutions,
  'keras': _keras,
}


_OTHERS = [*VARIANTS, *_TORCH][1:]  # Than the program.


def _others(text: str) -> list[str]:
  if not set(text.split(',')) <= set(_OTHERS):
    raise argparse.ArgumentTypeError(f'{text!r} is not of {", ".join(_OTHERS)}')
  return text.split(',')


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--network', type=networks.name, default='resnet-20', help='or wrn-16-4')
  parser.add_argument('--batch-size', type=commands.count, default=128)
  parser.add_argument('--dtypes', type=commands.dtypes, default=['float32', 'bfloat16'])
  parser.add_argument(
    '--warm-up',
    type=commands.count,
    default=15,
    help='steps before those: the first choose algorithms and fill the pipeline',
  )
  parser.add_argument('--steps', type=commands.count, default=60, help='measured steps')
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument('--torch-python', help='of the environment that has PyTorch; or no twins')
  parser.add_argument(
    '--beside',
    type=_others,
    default=_OTHERS,
    help='what to measure beside the program, with commas',
  )
  parser.add_argument('--variant', choices=tuple(VARIANTS), help='measure one, in this process')
  return parser


if __name__ == '__main__':
  errors.run_command(main)
