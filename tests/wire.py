"""Counts the bytes that each task of a cluster sends and receives in a step.

  python tests/wire.py --data-dir data > benchmarks/results/wire.json

A cluster has a host for each task (tests/hosts.py), which needs root; the kernel counts what
passes each host's cable, TCP's headers included. Its counters are read twice, when the chief says
its step, far from the start. Beside them stands what docs/clusters.md reckons from the network's
size.
"""

import json
import os
import re
import sys
import tempfile

from checkout import ROOT

sys.path[:0] = [ROOT, os.path.join(ROOT, 'benchmarks')]

from cifar10.core import start_tensorflow  # noqa: E402

start_tensorflow.start()

import commands  # noqa: E402
import environment  # noqa: E402
import hosts  # noqa: E402
import tensorflow as tf  # noqa: E402
import traffic  # noqa: E402

from cifar10.data.info import CIFAR10  # noqa: E402
from cifar10.options import hparams  # noqa: E402
from cifar10.training import inference, network_builder  # noqa: E402

ALL_REDUCE = ['--distribute', 'multi_worker_mirrored']
CLUSTERS = {  # Flags, workers beside the chief, parameter servers.
  'async, 2 workers, 1 server': ([], 1, 1),
  'sync, 2 workers, 1 server': (['--sync'], 1, 1),
  'sync, 3 workers, 1 server': (['--sync'], 2, 1),
  'sync, 3 workers, 2 servers': (['--sync'], 2, 2),
  'all-reduce, 2 workers': (ALL_REDUCE, 1, 0),
  'all-reduce, 3 workers': (ALL_REDUCE, 2, 0),
}
START_SECONDS = 600
FLAGS = ['--train-batch-size', 1, '--num-intra-threads', 1, '--log-every', 1, '--num-gpus', 0]
FLAGS += ['--train-steps', 10**6, '--eval-every-steps', 10**6]


class CountedTasks(hosts.HostedTasks):
  """Reads the counters of all cables at each step that the chief says."""

  def __init__(self, *arguments, **settings):
    super().__init__(*arguments, **settings)
    self.counted = []  # (step, {task: (bytes sent, bytes received)})
    self._show = self._hear

  def _hear(self, name, line):
    self.log.append((name, line))
    step = re.search(r'step ([\d,]+) of', line)
    if name == 'chief 0' and step:
      counters = {task: self._counters(task) for task in self.names}
      self.counted.append((int(step[1].replace(',', '')), counters))

  def _counters(self, task):
    paths = [f'/sys/class/net/eth0/statistics/{kind}_bytes' for kind in ('tx', 'rx')]
    return [int(line) for line in self.network.run(task, 'cat', *paths).splitlines()]


def main():
  """Counts in each cluster, one after the other; prints one JSON object."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files of a few images')
  parser.add_argument('--num-layers', type=commands.count, default=20)
  parser.add_argument('--steps', type=commands.count, default=100, help='at least, between counts')
  parser.add_argument('--only', help='clusters whose name begins so')
  flags = parser.parse_args()
  if hosts.why_not():
    parser.error(hosts.why_not())
  sizes = _network_bytes(flags.num_layers)
  counted = {}
  for name in CLUSTERS:
    if not flags.only or name.startswith(flags.only):
      counted[name] = _count(flags, name)
      print(f'{name}: {json.dumps(counted[name])}', file=sys.stderr, flush=True)
  record = {
    'name': 'wire',
    'command': commands.command_line(parser, flags),
    **environment.describe(),
    'network_bytes': sizes,
    'bytes_per_step': counted,
    'reckoned': {name: reckoned(name, **sizes) for name in counted},
  }
  print(json.dumps(record))


def reckoned(name, trainable, averages):
  """{'worker': [bytes sent, bytes received], 'ps': ...} of a step of one of these clusters.

  A step of an asynchronous cluster is one worker's: of n, each makes one step in n.
  """
  _, others, servers = CLUSTERS[name]
  workers = 1 + others
  steps = 1 / workers if name.startswith('async') else 1
  passed = traffic.bytes_of_a_step(workers, servers, trainable, averages)
  return {kind: [round(steps * count) for count in both] for kind, both in passed.items()}


def _network_bytes(num_layers):
  chosen = hparams.from_values(hparams.recipe_values('classic', {'num_layers': num_layers}))
  with tf.Graph().as_default():
    built = network_builder.build(chosen, CIFAR10, is_training=True)
    with tf.compat.v1.variable_scope(chosen.family.NAME):
      inference.infer(chosen, built, tf.zeros([1, 32, 32, 3], tf.uint8))
    trainable = set(tf.compat.v1.trainable_variables())
    others = set(tf.compat.v1.global_variables()) - trainable
  return {
    'trainable': sum(variable.shape.num_elements() * 4 for variable in trainable),
    'averages': sum(variable.shape.num_elements() * 4 for variable in others),
  }


def _count(flags, name):
  """A cluster -> {task: [bytes sent, bytes received]} in each step."""
  more, workers, ps = CLUSTERS[name]
  given = [*FLAGS, '--num-layers', flags.num_layers, *more]
  with (
    tempfile.TemporaryDirectory() as folder,
    hosts.Network(hosts.names(workers, ps)) as joined,
    CountedTasks(joined, folder, flags.data_dir, given, num_workers=workers, num_ps=ps) as tasks,
  ):
    tasks.start()
    tasks.until(lambda: len(tasks.counted) > 3, START_SECONDS)
    first, before = tasks.counted[2]
    tasks.until(lambda: tasks.counted[-1][0] >= first + flags.steps, START_SECONDS)
    last, after = tasks.counted[-1]
  return {
    task: [round((b - a) / (last - first)) for a, b in zip(before[task], after[task])]
    for task in before
  }


if __name__ == '__main__':
  main()
