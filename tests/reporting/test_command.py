"""The command: numbers and history are the program's own; mistakes are refused in one line."""

import importlib.util
import json
import os
import re
import shlex
import sys

import checkout
import numpy as np
import pytest
from outcome import refused, succeeded

import cifar10.report
from cifar10.exporters import export
from cifar10.job import checkpoints


@pytest.fixture
def report(run_here):
  """Runs the command -> its jobs in the last line's JSON, and what it said."""

  def run(*flags):
    ran = run_here(*flags, command=cifar10.report)
    return succeeded(ran)['jobs'], ran.stderr

  return run


def test_numbers_are_those_of_an_evaluation(make_job, data_dir, report, run_here):
  path = make_job()
  before = sorted(os.listdir(path))
  [found], said = report(path, '--table')
  assert sorted(os.listdir(path)) == before  # A report changes nothing.
  flags = ['--data-dir', data_dir, '--job-dir', path, '--mode', 'evaluate', '--num-gpus', 0]
  expected = json.loads(run_here(*flags).stdout)
  evaluation = found['evaluation']
  for name in ('accuracy', 'accuracy_top5', 'cross_entropy'):
    assert evaluation[name]['value'] == pytest.approx(expected[name], abs=1e-5)
    assert evaluation[name]['low'] < expected[name] < evaluation[name]['high']
  by_class = {name: each['accuracy']['value'] for name, each in evaluation['classes'].items()}
  assert by_class == pytest.approx(expected['accuracy_by_class'], abs=1e-5)
  assert (evaluation['step'], evaluation['examples']) == (8, 70)
  assert np.sum(evaluation['confusion_matrix'], 1).tolist() == [7] * 10
  assert 0 < evaluation['calibration_error'] < 1
  assert found['best'] == {'accuracy': 0.5, 'step': 8}
  assert (found['restarts'], found['seconds']) == (1, 80.0)
  [note] = found['notes']
  assert 'is far below the accuracy in training, 0.4000: it may be' in note
  assert f'{100 * expected["accuracy"]:.2f} %' in said


def test_doubts_are_named(make_job, data_dir, report):
  """A training split tells nothing of new images; other images are not the job's."""
  path = make_job(data={'train': 'other digests', 'eval': 'other digests'})
  [found], _ = report(path, '--subset', 'train', '--checkpoint', 'best')
  assert 'was trained with' in found['notes'][0]
  assert "not the job's own" in found['notes'][1]
  assert found['evaluation']['checkpoint'] == os.path.join(path, 'best', 'model.ckpt-8')
  [found], said = report(make_job(has_metrics=False), '--data-dir', data_dir, '--table')
  assert found['evaluation']['examples'] == 70
  assert 'A: There is no metrics.jsonl' in said


def test_mistakes_are_refused(make_job, run_here, tmp_path, monkeypatch):
  def refusal(*flags):
    return refused(run_here(*flags, command=cifar10.report), at_once=True)

  path = make_job()
  assert 'holds no job' in refusal(tmp_path)
  assert 'eval.tfrecords is missing' in refusal(path, '--data-dir', tmp_path)
  assert 'give --data-dir' in refusal(path, '--data-dir', 'gone')
  for name in checkpoints.files_of(os.path.join(path, 'model.ckpt-8')):
    os.remove(name)
  assert 'checkpoint' in refusal(path)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  assert cifar10.report._INSTALLED_BY in refusal(path, '--out', tmp_path / 'r.html')
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('name', ['report', 'onnx', 'companions'])
def test_requirements_the_extra_and_what_is_said_are_the_same(name):
  lines = checkout.read(f'requirements-{name}.txt').splitlines()
  required = list(filter(None, (line.partition('#')[0].strip() for line in lines)))
  extra = re.search(rf'^{name} = \[(.*?)\]$', checkout.read('pyproject.toml'), re.M | re.S)[1]
  assert re.findall('"(.*?)"', extra) == [line.replace('"', "'") for line in required]
  said = {'report': cifar10.report._INSTALLED_BY, 'onnx': export._INSTALLED_BY}.get(name)
  assert not said or shlex.split(said) == ['pip', 'install', *required]


def test_numbers_and_what_differs_need_no_libraries(make_job, report, monkeypatch):
  jobs = make_job('one'), make_job('other', learning_rate=0.3, lr_triangle=(0.0, 0.2, 0.0))
  for name in ('jinja2', 'markupsafe', 'matplotlib'):
    monkeypatch.setitem(sys.modules, name, None)  # An import of it fails.
  found, said = report(*jobs, '--table')
  assert [each['job'] for each in found] == [*jobs]
  lines = said.split('What differs')[1].splitlines()[1:]
  differences = [line for line in lines if not re.match('[AB]: ', line)]  # Those are notes.
  options = [['learning_rate', '0.1', '0.3'], ['lr_triangle', 'none', '0,0.2,0']]
  assert sorted(line.split() for line in differences) == options
