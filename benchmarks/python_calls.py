"""What a hundred calls of `cifar10.train` leave in one process: memory, handles, threads, files.

  python benchmarks/python_calls.py --data-dir DATA

Each call trains ResNet-8 for two steps in a new job dir and evaluates it. After each the process is
looked at, and the TensorFlow graphs that are left are counted. Slopes are as in soak_memory.py.
"""

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import threading

import commands
import environment
import soak_memory
import tensorflow as tf

import cifar10
from cifar10.core import cli


def main() -> None:
  """Trains; prints slopes and extremes."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--calls', type=commands.count, default=100)
  flags = parser.parse_args()
  record = {
    **environment.head('python_calls', parser, flags),
    'calls': soak_memory.described(_samples(flags), 1, 'call'),
  }
  print(json.dumps(record))


def _samples(flags: argparse.Namespace) -> list[soak_memory.Sample]:
  """After each call."""
  found = []
  with tempfile.TemporaryDirectory() as folder:
    temporary = os.path.join(folder, 'temporary')
    os.mkdir(temporary)
    tempfile.tempdir = temporary
    for call in range(1, flags.calls + 1):
      job = os.path.join(folder, 'job')
      cifar10.train(
        job,
        flags.data_dir,
        num_layers=8,
        train_batch_size=8,
        train_steps=2,
        eval_every_steps=1,
        num_gpus=0,
      )
      shutil.rmtree(job)
      gc.collect()
      [sample] = soak_memory.sample(os.getpid(), call, temporary)
      sample['python_threads'] = threading.active_count()
      sample['graphs'] = sum(isinstance(each, tf.Graph) for each in gc.get_objects())
      if read := soak_memory.mallinfo():
        sample['held_mib'] = soak_memory.held_mib(read)
      print(call, sample, file=sys.stderr)
      found.append(sample)
  return found


if __name__ == '__main__':
  cli.run_command(main)
