"""A Python shell inside a training, between two steps. Start it in a terminal, and ask for one:

PYTHONPATH=examples python cifar10_main.py --callback debug_shell:DebugShell --job-dir job ...
touch job/shell   # In another terminal.
"""

import code
import os
import sys

import tensorflow as tf
import tqdm

import cifar10


def leave(status=None):
  raise SystemExit  # Python's own `exit` would close standard input, too.


class DebugShell(cifar10.Callback):
  def __init__(self, run):
    self.run = run

  def on_graph(self, graph):
    self.tensors = {'images': graph.images, 'labels': graph.labels}

  def before_run(self, run_context):
    return tf.compat.v1.train.SessionRunArgs(self.tensors)

  def after_run(self, run_context, run_values):
    if os.path.exists(path := f'{self.run.job_dir}/shell'):
      os.remove(path)
      names = {'run': self.run, 'session': run_context.session, 'batch': run_values.results}
      banner = f'after step {self.run.step}; here are {", ".join(names)}, tf; Ctrl-D trains on'
      try:
        with tqdm.tqdm.external_write_mode(sys.stderr), run_context.session.graph.as_default():
          code.interact(banner, local={**names, 'tf': tf, 'exit': leave, 'quit': leave}, exitmsg='')
      except SystemExit:
        pass
