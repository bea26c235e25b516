"""Job dirs of versions 0 and 1 evaluate to the same loss, and go on training.

Those of e632993, before options were declared once, are kept beside this folder. Those of later
commits are trained here by the commits' own programs, where git has them and TensorFlow still has
its Estimator.
"""

import json
import shutil
import sys
import tarfile

import checkout
import pytest
import tensorflow as tf
from outcome import succeeded

pytestmark = pytest.mark.slow

# How each was trained, as far as its job dir does not say it to a command that trains.
KEPT = {'resnet8': [], 'fastnet': ['--recipe', 'fast94', '--dtype', 'float32']}
SMALL = ['--num-layers', 8, '--ema-decay', 0.9, '--muon-learning-rate', 0.02]


@pytest.mark.parametrize('name', KEPT)
def test_of_e632993(name, data_dir, run_here, tmp_path):
  job = shutil.copytree(f'{checkout.OLD_JOBS}/{name}', tmp_path / 'job')
  with open(f'{checkout.OLD_JOBS}/expected.json', encoding='utf-8') as file:
    check(run_here, data_dir, job, KEPT[name], json.load(file)[name])


@pytest.mark.skipif(tf.__version__ >= '2.16', reason='their Estimator is of TensorFlow 2.15')
@pytest.mark.parametrize('commit', ['25e4215', '0872a1f'])
def test_of_a_commit(commit, data_dir, run_here, tmp_path):
  archived = checkout.run('git', 'archive', '-o', tmp_path / 'old.tar', commit)
  if archived.returncode:
    pytest.skip(f'git has no {commit} here: {archived.stderr}')
  with tarfile.open(tmp_path / 'old.tar') as tar:
    tar.extractall(tmp_path / 'old', filter='data')
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', *SMALL, '--num-gpus', 0]
  flags += ['--train-batch-size', 16, '--train-steps', 8]
  program = [sys.executable, tmp_path / 'old' / 'cifar10_main.py']
  expected = succeeded(checkout.run(*program, *flags, cwd=tmp_path / 'old'))
  check(run_here, data_dir, tmp_path / 'job', SMALL, {'loss': expected['loss']})


def check(run_here, data_dir, job, flags, expected):
  """The job evaluates as then; every variable is found again under its old name for a 9th step."""
  here = ['--data-dir', data_dir, '--job-dir', job, '--num-gpus', 0]
  found = succeeded(run_here(*here, '--mode', 'evaluate'))
  # Processors sum in different orders.
  assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-4)
  more = ['--mode', 'train', '--train-batch-size', 16, '--train-steps', 9]
  result = run_here(*here, *flags, *more)
  assert succeeded(result)['global_step'] == 9
  assert 'resuming at step 8 of 9' in result.stderr
