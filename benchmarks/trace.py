"""Where a training step's time goes: seconds by operation, from TensorFlow's own trace.

  python benchmarks/trace.py --recipe fast94 --batch-size 500

The graph is the program's own on a constant batch of random images. Operations run side by side on
the cores, so that their times add up to more than the step's.
"""

import argparse
import collections
import dataclasses
import json
import sys
import time
from typing import Any

import commands
import environment
import numpy as np
import tensorflow as tf

from cifar10.cluster import roles
from cifar10.core import cli, devices
from cifar10.data.info import CIFAR10
from cifar10.networks import families as networks
from cifar10.networks.fastnet import Start
from cifar10.options import families, hparams
from cifar10.training import model_fn
from estimator_again import estimator as tf_estimator

_WARM_UP = 4  # Steps: the first ones choose algorithms.


def main() -> None:
  """Traces a few steps, prints a table, and the JSON object last."""
  parser = _parser()
  flags = parser.parse_args()
  tf.get_logger().setLevel('ERROR')
  seconds, step_seconds = measure(flags)
  total = sum(seconds.values())
  ordered = sorted(seconds.items(), key=lambda item: -item[1])
  for name, value in ordered[: flags.lines]:
    print(f'{1e3 * value:9.2f} ms {100 * value / total:5.1f} %  {name}', file=sys.stderr)
  record = {
    **environment.head('trace', parser, flags),
    'step_seconds': round(step_seconds, 4),
    'images_per_second': round(flags.batch_size / step_seconds),
    'share_by_operation': {name: round(value / total, 4) for name, value in ordered[:20]},
  }
  print(json.dumps(record))


def measure(flags: argparse.Namespace) -> tuple[dict[str, float], float]:
  """Seconds a step in each operation, and seconds of a step that is not traced."""
  given: dict[str, Any] = {'train_batch_size': flags.batch_size}
  if flags.num_layers:
    given['num_layers'] = flags.num_layers
  if flags.dtype:
    given['dtype'] = flags.dtype
  chosen = hparams.from_values(hparams.recipe_values(flags.recipe, given))
  if chosen.dtype == 'auto':
    chosen = dataclasses.replace(chosen, dtype=devices.fast_dtype(0)[0])
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, [flags.batch_size, 32, 32, 3]).astype(np.uint8)
  with tf.Graph().as_default():
    tf.compat.v1.train.get_or_create_global_step()
    start = Start(lambda count: images[:count], CIFAR10, tf.compat.v1.ConfigProto(), 0)
    training = model_fn.Training(roles.Role(), 50_000, networks.prepare(chosen.family, start))
    build = model_fn.get_model_fn(0, 'CPU', 1, training=training)
    features = tf.constant(images)
    labels = tf.constant(rng.integers(0, 10, flags.batch_size), tf.int32)
    spec = build((features,), (labels,), tf_estimator.ModeKeys.TRAIN, chosen)
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      # Steps as nearly all of a training are: a fast recipe's first ones teach one more bias.
      session.run(tf.compat.v1.train.get_global_step().assign(chosen.train_steps // 2))
      times = []
      for _ in range(_WARM_UP + flags.steps):
        since = time.perf_counter()
        session.run(spec.train_op)
        times.append(time.perf_counter() - since)
      seconds: collections.Counter = collections.Counter()
      for _ in range(flags.steps):
        _trace(session, spec.train_op, flags.by, flags.steps, seconds)
  return dict(seconds), sorted(times[_WARM_UP:])[flags.steps // 2]


def _trace(session: Any, op: Any, by: str, steps: int, seconds: collections.Counter) -> None:
  """Adds one step's times to `seconds`."""
  options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
  metadata = tf.compat.v1.RunMetadata()
  session.run(op, options=options, run_metadata=metadata)
  for device in metadata.step_stats.dev_stats:
    for node in device.node_stats:
      # 'name = Type(inputs)' where the executor says it; else the name alone.
      kind = node.timeline_label.partition(' = ')[2].partition('(')[0] or node.node_name
      name = kind if by == 'type' else f'{kind} {node.node_name}'
      seconds[name] += (node.op_end_rel_micros - node.op_start_rel_micros) / 1e6 / steps


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--recipe', choices=tuple(families.RECIPES), default='fast94')
  parser.add_argument('--num-layers', type=int, help="(default: the recipe's)")
  parser.add_argument('--batch-size', type=commands.count, default=500)
  parser.add_argument('--dtype', choices=('float32', 'bfloat16'), help="(default: the recipe's)")
  parser.add_argument('--by', choices=('type', 'node'), default='type')
  parser.add_argument('--steps', type=commands.count, default=3)
  parser.add_argument('--lines', type=commands.count, default=25)
  return parser


if __name__ == '__main__':
  cli.run_command(main)
