"""Every command in the README runs, in order, on small data; its make targets exist."""

import functools
import itertools
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import tensorflow as tf

from cifar10.estimator import REDUCES_BETWEEN_PROCESSES

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def readme():
  with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as file:
    return file.read()


def commands():
  """The lines of all `sh` blocks, without comments."""
  blocks = re.findall(r'```sh\n(.*?)```', readme(), re.S)
  lines = '\n'.join(blocks).replace('\\\n', ' ').splitlines()
  return [words for line in lines if (words := shlex.split(line, comments=True))]


def small(words):
  """The command with flags added that make it short: an appended flag wins over an earlier one."""
  if words[1] == 'generate_cifar10_tfrecords.py':
    return [*words, '--synthetic', '40']
  trains = words[1] == 'cifar10_main.py' or '-m' in words
  if trains and '--mode' not in words:
    return [*words, '--num-layers', '8', '--train-steps', '2', '--train-batch-size', '16']
  return words


def free_ports(words):
  """The command with ports that nothing else uses; the same ones for the same ones."""
  return [
    re.sub(r'localhost:(\d+)', lambda match: f'localhost:{free_port(match[1])}', w) for w in words
  ]


@functools.cache
def free_port(instead_of):
  with socket.create_server(('localhost', 0)) as server:
    return server.getsockname()[1]


def start(words, cwd):
  """The process of a command line: assignments first, `&` perhaps last."""
  assigned = dict(itertools.takewhile(lambda pair: len(pair) > 1, (w.split('=', 1) for w in words)))
  command = [word for word in words[len(assigned) :] if word != '&']
  return subprocess.Popen(
    [sys.executable, *small(command)[1:]],
    cwd=cwd,
    env={**os.environ, **assigned},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def shows_training(address):
  """Whether this TensorBoard comes to list a training run's scalars."""
  deadline = time.monotonic() + 60
  while time.monotonic() < deadline:
    with urllib.request.urlopen(f'{address}data/plugin/scalars/tags', timeout=10) as response:
      if 'learning_rate' in json.load(response).get('.', {}):
        return True
    time.sleep(0.5)
  return False


def test_make_targets_exist():
  targets = {words[1] for words in commands() if words[0] == 'make'}
  assert targets == {'demo', 'test', 'install'}
  for target in targets:
    # -n: `make demo` itself is CI's; here it only has to be there.
    subprocess.run(['make', '-n', target], cwd=ROOT, check=True, capture_output=True, timeout=30)


@pytest.mark.slow
def test_every_command_runs(tmp_path, serve_tensorboard):
  for name in os.listdir(ROOT):
    if name.endswith('.py') or name in ('cifar10', 'benchmarks'):
      os.symlink(os.path.join(ROOT, name), tmp_path / name)
  # Any image: the README's reader has a cat.
  picture = tf.io.encode_png(tf.fill([40, 50, 3], tf.constant(200, tf.uint8)))
  tf.io.write_file(str(tmp_path / 'cat.png'), picture)
  ran = 0
  running = []
  try:
    for words in commands():
      if words[0] == 'tensorboard':
        with serve_tensorboard(*words[1:], cwd=tmp_path) as address:
          assert shows_training(address)
      elif 'multi_worker_mirrored' in words and not REDUCES_BETWEEN_PROCESSES:
        continue  # The README says on which TensorFlow it is refused.
      elif 'python' in words:
        running.append(start(free_ports(words), tmp_path))
        while running and words[-1] != '&':
          process = running[-1]
          output, log = process.communicate(timeout=180)
          assert process.returncode == 0, (words, log)
          json.loads(output.splitlines()[-1])
          running.pop()
          ran += 1
      else:
        assert words[0] == 'make' or words == ['.', '.venv/bin/activate'], words
  finally:
    for process in running:
      process.terminate()  # A cluster ends its own processes.
      process.communicate(timeout=60)
  assert ran >= 12 - (not REDUCES_BETWEEN_PROCESSES)


def test_the_tables_are_made_from_the_results():
  report = [sys.executable, os.path.join(ROOT, 'benchmarks', 'report.py'), '--check']
  result = subprocess.run(report, capture_output=True, text=True, timeout=60, check=False)
  assert result.returncode == 0, result.stderr
