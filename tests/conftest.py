"""What several test files share: small records, and the program as a process."""

import os
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
