"""What several test files share: small records, the program and TensorBoard as processes."""

import contextlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from cifar10 import archive, records

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COUNTS = {'train': 256, 'validation': 64, 'eval': 70}


@pytest.fixture(scope='session')
def data_dir(tmp_path_factory):
  """Record files of synthetic images with their manifest."""
  folder = str(tmp_path_factory.mktemp('data'))
  rng = np.random.default_rng(0)
  for subset, count in COUNTS.items():
    labels = np.arange(count) % records.NUM_CLASSES
    images = archive.synthetic_images(labels, rng)
    records.write_records(records.record_path(folder, subset), images, labels)
  subsets = {name: records.describe_subset(folder, name, count) for name, count in COUNTS.items()}
  records.write_manifest(folder, {'source': 'synthetic', 'subsets': subsets})
  return folder


@pytest.fixture(scope='session')
def run_main():
  """Runs cifar10_main.py in a process of its own -> CompletedProcess."""

  def run(*flags, timeout=120):
    return subprocess.run(
      [sys.executable, os.path.join(ROOT, 'cifar10_main.py'), *map(str, flags)],
      capture_output=True,
      text=True,
      timeout=timeout,
      check=False,
    )

  return run


@pytest.fixture(scope='session')
def start_main():
  """Starts cifar10_main.py in a process of its own -> Popen, to be used as a context."""

  def start(*flags):
    return subprocess.Popen(
      [sys.executable, os.path.join(ROOT, 'cifar10_main.py'), *map(str, flags)],
      stderr=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      text=True,
    )

  return start


@pytest.fixture(scope='session')
def serve_tensorboard():
  """A context that runs the real server on a free port -> its address."""

  @contextlib.contextmanager
  def serve(*flags, cwd=None):
    command = [sys.executable, '-m', 'tensorboard.main', *flags, '--port', '0']
    with subprocess.Popen(
      [*command, '--host', '127.0.0.1', '--load_fast=false'],
      cwd=cwd,
      stderr=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      text=True,
    ) as process:
      try:
        found = (re.search(r'http://127\.0\.0\.1:\d+/', line) for line in process.stderr)
        yield next(match for match in found if match).group()
      finally:
        process.kill()  # Not SIGTERM: a TensorBoard that is reading files can ignore it for good.

  return serve
