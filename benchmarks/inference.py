"""An exported ResNet-20: seconds of a call with one image, images/s in batches, beside PyTorch.

  python benchmarks/inference.py --data-dir DATA --torch-python .venv-bench/bin/python

The program trains for one step and exports; a process of its own loads the SavedModel and calls it
as a server would: uint8 images in, classes and probabilities out. PyTorch's twin does the same,
eager and compiled; and onnxruntime (float32 only) and OpenVINO with the program's own exports in
float32, where this Python has them. The limit is the sum of the program's convolutions, each run
alone.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import commands
import convolutions
import environment
import numpy as np
import peers
import tensorflow as tf

from cifar10.core import cli
from cifar10.options import hparams
from cifar10.training import model_fn
from cifar10.training.inference import CLASSES, IMAGES, PROBABILITIES
from estimator_again import estimator as tf_estimator

_WARM_UP = 15  # Calls.
_TORCH = {'torch': [], 'torch compiled': ['--compile']}
_OTHER_RUNTIMES = ('onnxruntime', 'openvino')

Measure = Callable[[str, int], float]  # Precision, batch size -> seconds of a call.


def main() -> None:
  """Measures every variant in turn, `--pairs` times; prints one JSON object."""
  parser = _parser()
  flags = parser.parse_args()
  if not flags.exported and not flags.data_dir:
    parser.error('--data-dir is missing: name the folder of the record files')
  tf.get_logger().setLevel('ERROR')
  if flags.exported:
    call = _CALLS[flags.runtime](flags.exported, flags.dtypes[0])
    print(json.dumps(_seconds(call, _images(flags.batch_size), flags.calls)))
    return
  seconds: dict[str, list[float]] = {}
  versions: dict[str, str] = {}  # The peers'.
  batch_sizes = sorted({1, flags.batch_size})
  with tempfile.TemporaryDirectory() as folder:
    variants = _variants(flags, folder, versions)
    turns = itertools.product(range(flags.pairs), batch_sizes, flags.dtypes, variants.items())
    for _, batch_size, dtype, (name, (dtypes, measure)) in turns:
      if dtype in dtypes:
        case = f'{name} {dtype}, batch {batch_size}'
        seconds.setdefault(case, []).append(measure(dtype, batch_size))
        print(f'{case}: {1e3 * seconds[case][-1]:.2f} ms', file=sys.stderr)
  medians = commands.medians(seconds)
  record = {
    **environment.head('inference', parser, flags),
    **versions,
    'milliseconds': {name: round(1e3 * value, 3) for name, value in medians.items()},
    'images_per_second': {
      name: round(int(name.rpartition(' ')[2]) / value) for name, value in medians.items()
    },
    'ratios': _ratios(medians, flags.dtypes, batch_sizes),
  }
  print(json.dumps(record))


def _variants(
  flags: argparse.Namespace, folder: str, versions: dict[str, str]
) -> dict[str, tuple[list[str], Measure]]:
  """All that can be measured here: in which precisions, and how; adds the peers' versions.

  onnxruntime has no convolutions in bfloat16. OpenVINO reads float32 alone, and casts.
  """

  def called(runtime: str, exported: str, dtype: str, batch_size: int) -> float:
    """Seconds of a call in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), '--runtime', runtime]
    command += ['--exported', exported, '--dtypes', dtype]
    return commands.last_line([*command, '--batch-size', batch_size, '--calls', flags.calls])

  def in_torch(more: list[str], dtype: str, batch_size: int) -> float:
    settings = ['--network', 'resnet-20', '--dtype', dtype, *more]
    settings += ['--batch-size', str(batch_size), '--calls', str(flags.calls)]
    result = peers.run_torch(flags.torch_python, 'resnet', folder, settings)
    versions['torch'] = result['torch']
    return result['seconds']

  def in_tensorflow(dtype: str, batch_size: int) -> float:
    return called('tensorflow', exported[dtype], dtype, batch_size)

  exported = _exports(flags, folder)
  variants: dict[str, tuple[list[str], Measure]] = {
    'program': (flags.dtypes, in_tensorflow),
    'convolutions (limit)': (flags.dtypes, _limit),
  }
  if importlib.util.find_spec('onnxruntime') and 'float32' in exported:
    job = ['--job-dir', os.path.join(folder, 'float32'), '--mode', 'export', '--format', 'onnx']
    onnx = commands.last_line([*commands.PROGRAM, *job])['onnx']
    variants['onnxruntime'] = ['float32'], functools.partial(called, 'onnxruntime', onnx)
  if importlib.util.find_spec('openvino') and 'float32' in exported:
    path = exported['float32']
    variants['openvino'] = flags.dtypes, functools.partial(called, 'openvino', path)
  versions |= {
    name: importlib.metadata.version(name) for name in _OTHER_RUNTIMES if name in variants
  }
  if flags.torch_python:
    peers.export_arrays(flags.data_dir, folder)
    for name, more in _TORCH.items():
      variants[name] = flags.dtypes, functools.partial(in_torch, more)
  return variants


def _ratios(medians: dict[str, float], dtypes: list[str], batches: list[int]) -> dict[str, float]:
  """How many times as fast as the faster form of PyTorch the program is."""
  ratios = {}
  for batch in batches:
    for dtype in dtypes:
      case = f'{dtype}, batch {batch}'
      theirs = [medians[f'{name} {case}'] for name in _TORCH if f'{name} {case}' in medians]
      if theirs:
        ratios[f'program / best PyTorch, {case}'] = round(
          min(theirs) / medians[f'program {case}'], 2
        )
  return ratios


def _exports(flags: argparse.Namespace, folder: str) -> dict[str, str]:
  """Trains one step in each precision and exports -> the SavedModels' folders."""
  exported = {}
  for dtype in flags.dtypes:
    job = ['--job-dir', os.path.join(folder, dtype), '--num-layers', '20', '--dtype', dtype]
    program = [*commands.PROGRAM, *job, '--mode']
    commands.last_line([*program, 'train', '--data-dir', flags.data_dir, '--train-steps', '1'])
    exported[dtype] = commands.last_line([*program, 'export'])['saved_model']
  return exported


def _seconds(call: Callable[[np.ndarray], Any], images: np.ndarray, calls: int) -> float:
  """The median of a call."""
  times = []
  for _ in range(_WARM_UP + calls):
    since = time.perf_counter()
    call(images)
    times.append(time.perf_counter() - since)
  return statistics.median(times[_WARM_UP:])


def _in_tensorflow(saved_model: str, dtype: str) -> Callable[[np.ndarray], Any]:
  del dtype  # It is the graph's.
  loaded = tf.saved_model.load(saved_model)  # Its signatures end with it.

  def call(images: np.ndarray) -> list[np.ndarray]:
    results = loaded.signatures['serving_default'](**{IMAGES: tf.constant(images)})
    return [result.numpy() for result in results.values()]

  return call


def _in_onnxruntime(path: str, dtype: str) -> Callable[[np.ndarray], Any]:
  import onnxruntime  # noqa: PLC0415 - may be missing

  del dtype  # float32
  session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
  return lambda images: session.run([CLASSES, PROBABILITIES], {IMAGES: images})


def _in_openvino(saved_model: str, dtype: str) -> Callable[[np.ndarray], Any]:
  import openvino  # noqa: PLC0415 - may be missing

  hint = {'float32': 'f32', 'bfloat16': 'bf16'}[dtype]
  settings = {'PERFORMANCE_HINT': 'LATENCY', 'INFERENCE_PRECISION_HINT': hint}
  network = openvino.Core().compile_model(saved_model, 'CPU', settings)
  return lambda images: list(network([images]).values())


_CALLS = {
  'tensorflow': _in_tensorflow,
  'onnxruntime': _in_onnxruntime,
  'openvino': _in_openvino,
}


def _limit(dtype: str, batch_size: int) -> float:
  """Seconds of the graph's convolutions."""
  chosen = hparams.from_values(hparams.recipe_values('classic', {'num_layers': 20, 'dtype': dtype}))
  with tf.Graph().as_default():
    build = model_fn.get_model_fn(0, 'CPU', 1)
    features = {IMAGES: tf.constant(_images(batch_size))}
    spec = build(features, None, tf_estimator.ModeKeys.PREDICT, chosen)
    return convolutions.seconds(spec.predictions['probabilities'].op)


def _images(count: int) -> np.ndarray:
  return np.random.default_rng(0).integers(0, 256, [count, 32, 32, 3]).astype(np.uint8)


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', help='record files')
  parser.add_argument('--dtypes', type=commands.dtypes, default=['float32', 'bfloat16'])
  parser.add_argument('--batch-size', type=commands.count, default=256, help='beside 1')
  parser.add_argument('--calls', type=commands.count, default=60, help='in each measurement')
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument('--torch-python', help='of the environment that has PyTorch; or no twins')
  parser.add_argument('--exported', help='measure this one, in this process')
  parser.add_argument('--runtime', choices=_CALLS, default='tensorflow', help='which runs it')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
