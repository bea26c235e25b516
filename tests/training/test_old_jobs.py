"""Job dirs that commit e632993 made, before options were declared once, still mean the same."""

import json
import shutil

import checkout
import pytest

pytestmark = pytest.mark.slow

# How each was trained, as far as its job dir does not say it to a command that trains.
FLAGS = {'resnet8': [], 'fastnet': ['--recipe', 'fast94', '--dtype', 'float32']}


@pytest.fixture(params=FLAGS)
def name(request):
  return request.param


@pytest.fixture
def job(name, tmp_path):
  """A copy of the job dir."""
  return shutil.copytree(f'{checkout.OLD_JOBS}/{name}', tmp_path / 'job')


def test_evaluates_to_the_same_loss(name, job, data_dir, run_here):
  with open(f'{checkout.OLD_JOBS}/expected.json', encoding='utf-8') as file:
    expected = json.load(file)[name]
  flags = ['--data-dir', data_dir, '--job-dir', job, '--mode', 'evaluate', '--num-gpus', 0]
  line = json.loads(run_here(*flags).stdout)
  # Processors sum in different orders.
  assert {key: line[key] for key in expected} == pytest.approx(expected, rel=1e-4)


def test_goes_on_training(name, job, data_dir, run_here):
  """Every variable of the optimizer is found in the checkpoint, under its old name."""
  flags = ['--data-dir', data_dir, '--job-dir', job, '--mode', 'train', '--num-gpus', 0]
  result = run_here(*flags, *FLAGS[name], '--train-batch-size', 16, '--train-steps', 9)
  assert json.loads(result.stdout)['global_step'] == 9, result.stderr
