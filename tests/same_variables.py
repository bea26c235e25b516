"""Whether two checkouts of the program train the same network, bit for bit.

  python tests/same_variables.py BEFORE [AFTER] [--data-dir DATA]

Trains 20 steps in each (AFTER: this checkout) with one seed, --deterministic and one thread (in a
cluster as many as there are cores), in several ways, and compares every variable of the last
checkpoints. Then both evaluate what BEFORE trained, and what they print is compared. A change of
structure shows with it that it changed nothing. Both run with the Python that runs this.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from checkout import ROOT, python

THREADS = ['--num-intra-threads', '1', '--num-inter-threads', '1']
ALIKE = ['--mode', 'train', '--deterministic', '--seed', '3', '--train-steps', '20']
SMALL = ['--train-batch-size', '64', '--eval-batch-size', '100']
FAST = ['--recipe', 'fast94', '--train-batch-size', '100', '--eval-batch-size', '100']
CLUSTER = ['-m', 'cifar10.local_cluster', '--workers', '2', '--ps', '1', '--']
WAYS = {
  'classic, float32': ['cifar10_main.py', *SMALL],
  'fast94, float32': ['cifar10_main.py', *FAST, '--dtype', 'float32'],
  'fast94, bfloat16': ['cifar10_main.py', *FAST, '--dtype', 'bfloat16'],
  'two towers': ['cifar10_main.py', *SMALL, '--num-layers', '14', '--num-cpu-towers', '2'],
  'synchronous cluster': [*CLUSTER, *SMALL, '--num-layers', '8', '--sync'],
  'averages, lookahead': [
    *('cifar10_main.py', *SMALL, '--num-layers', '8'),
    *('--ema-decay', '0.9', '--lookahead-steps', '5'),
  ],
  'harder halves': [
    *('cifar10_main.py', *FAST, '--widths', '24,24,32'),
    '--proxy-widths',
    '24,24,24',
  ],
}


def main():
  """Prints a line a way of training, and ends with code 1 if any differs."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('before')
  parser.add_argument('after', nargs='?', default=ROOT)
  parser.add_argument('--data-dir', help='record files (default: 500 synthetic images)')
  flags = parser.parse_args()
  with tempfile.TemporaryDirectory() as scratch:
    data_dir = flags.data_dir and os.path.abspath(flags.data_dir)
    if not data_dir:
      data_dir = os.path.join(scratch, 'data')
      run(flags.before, 'generate_cifar10_tfrecords.py', '--data-dir', data_dir, '--synthetic', 500)
    same = {way: compare(flags, command, data_dir, scratch) for way, command in WAYS.items()}
  print(json.dumps(same, indent=1))
  sys.exit(not all(all(way.values()) for way in same.values()))


def compare(flags, command, data_dir, scratch):
  """Whether both checkouts come to the same variables, and evaluate those alike."""
  with tempfile.TemporaryDirectory(dir=scratch) as jobs:
    before, after = os.path.join(jobs, 'before'), os.path.join(jobs, 'after')
    trained = variables(flags.before, command, data_dir, before)
    is_same = trained == variables(flags.after, command, data_dir, after)
    evaluate = ['cifar10_main.py', '--data-dir', data_dir, '--job-dir', before, *THREADS]
    evaluate += ['--mode', 'evaluate', '--eval-batch-size', '100']
    printed = [run(checkout, *evaluate) for checkout in (flags.before, flags.after)]
    return {'trains the same': is_same, 'evaluates the same': printed[0] == printed[1]}


def variables(checkout, command, data_dir, job_dir):
  """What 20 steps lead to: the bytes of every variable, by name."""
  # Chief and workers of a cluster did not obey the flags of threads before 1.0.0.
  threads = [] if CLUSTER[1] in command else THREADS
  run(checkout, *command, '--data-dir', data_dir, '--job-dir', job_dir, *ALIKE, *threads)
  import tensorflow as tf  # noqa: PLC0415  (after the processes that it would slow down)

  reader = tf.train.load_checkpoint(os.path.join(job_dir, 'model.ckpt-20'))
  return {name: reader.get_tensor(name).tobytes() for name in reader.get_variable_to_shape_map()}


def run(checkout, *command):
  """One command of a checkout -> the last line that it printed."""
  environment = {**os.environ, 'PYTHONPATH': os.path.abspath(checkout)}
  output = {'capture_output': False, 'stdout': subprocess.PIPE, 'timeout': None}
  result = python(*command, cwd=checkout, env=environment, must_succeed=True, **output)
  return result.stdout.splitlines()[-1]


if __name__ == '__main__':
  main()
