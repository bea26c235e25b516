"""Runs a program of the project, and holds its training at a step until SIGTERM comes.

  python tests/held_training.py cifar10_main.py FLAGS

HELD in the environment says which task is held and after how many steps of its own: 'chief 20 30'
holds the chief after 20 steps at a Slurm job's first start, after 30 at its second, and not at its
third.
"""

import os
import runpy
import sys
import time

from checkout import ROOT

sys.path[0] = ROOT  # As if the program had been started by itself.

from cifar10.cluster.tf_config import parse_cluster  # noqa: E402
from cifar10.core import start_tensorflow  # noqa: E402


def held_after():
  """The steps after which this process is held; None if it is not."""
  job, *starts = os.environ.get('HELD', '').split() or ['']
  start = int(os.environ.get('SLURM_RESTART_COUNT', '0'))
  task = parse_cluster(os.environ.get('TF_CONFIG', ''), 0).task_type
  return int(starts[start]) if task == job and start < len(starts) else None


def hold(steps):
  """Makes the training wait after so many steps."""
  start_tensorflow.start()
  from cifar10.training import trainer  # noqa: PLC0415

  after_run = trainer._TaskHook.after_run

  def after_run_held(self, run_context, run_values):
    if self.steps + 1 >= steps:
      print(f'held after {self.steps + 1} steps', file=sys.stderr, flush=True)
    while self.steps + 1 >= steps and not self._role.monitor.stopping:
      time.sleep(0.1)
    after_run(self, run_context, run_values)

  trainer._TaskHook.after_run = after_run_held


if __name__ == '__main__':
  del sys.argv[0]
  if sys.argv[0] == 'cifar10_main.py' and (held := held_after()):
    hold(held)
  runpy.run_path(os.path.join(ROOT, sys.argv[0]), run_name='__main__')
