"""The command: numbers and history are the program's own; mistakes are refused in one line."""

import importlib.util
import json
import os
import re
import shlex
import shutil

import checkout
import numpy as np
import pytest
from outcome import refused, succeeded

import cifar10.report
from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.exporters import export
from cifar10.job import checkpoints, metrics_log
from cifar10.reporting import job_report
from cifar10.reporting.job_report import History


@pytest.fixture
def report(run_here):
  """Runs the command -> its jobs in the last line's JSON, and what it said."""

  def run(*flags):
    ran = run_here(*flags, command=cifar10.report)
    return succeeded(ran)['jobs'], ran.stderr

  return run


@pytest.fixture
def refusal(run_here):
  """Runs the command -> the one line that refuses."""
  return lambda *flags: refused(run_here(*flags, command=cifar10.report), at_once=True)


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
  assert (found['restarts'], found['seconds'], found['notes']) == (1, 80.0, [])
  assert f'{100 * expected["accuracy"]:.2f} %' in said


@pytest.mark.long
def test_a_written_history_is_read(run_here, data_dir, report, tmp_path):
  """Of a training that resumes, evaluated by the average of its weights."""
  path = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', path, '--num-layers', 8, '--num-gpus', 0]
  flags += ['--train-batch-size', 16, '--ema-decay', 0.5, '--use-ema', '--eval-every-steps', 2]
  for steps in (2, 4):
    ran = run_here(*flags, '--train-steps', steps)
  expected = json.loads(ran.stdout)
  [found], _ = report(path, '--out', tmp_path / 'report.html')
  evaluation = found['evaluation']
  assert (evaluation['weights'], evaluation['step'], found['restarts']) == ('ema', 4, 1)
  assert evaluation['accuracy']['value'] == pytest.approx(expected['accuracy'], abs=1e-5)
  assert evaluation['cross_entropy']['value'] == pytest.approx(expected['cross_entropy'], abs=1e-4)
  assert found['best']['step'] in (2, 4)
  page = (tmp_path / 'report.html').read_text(encoding='utf-8')
  moments = re.findall(r'<td>(started|went on|ended \(train_steps\))</td>', page)
  assert moments == ['started', 'ended (train_steps)', 'went on', 'ended (train_steps)']


def test_mistakes_are_of_the_images_that_they_show(make_job, data_dir, run_here, tmp_path):
  """Each is in the split's file where it is said to be, with its own label and answer."""
  path, out = make_job(), tmp_path / 'predicted.npz'
  flags = ['--mode', 'predict', '--subset', 'validation', '--data-dir', data_dir, '--out', out]
  succeeded(run_here('--job-dir', path, *flags))
  predicted = np.load(out)
  images, labels = Cifar10DataSet(data_dir, 'validation').all_examples()
  evaluation = job_report.collect('A', path, 'validation').evaluation
  wrong = np.sum(predicted['predictions'] != labels)
  assert len(evaluation.mistakes) == min(wrong, 40) > 0
  of_truth = []
  for mistake in evaluation.mistakes:
    np.testing.assert_array_equal(mistake.image, images[mistake.place])
    names = predicted['class_names']
    assert mistake.label == names[labels[mistake.place]]
    assert mistake.predicted == names[predicted['predictions'][mistake.place]] != mistake.label
    of_truth.append(mistake.probabilities[mistake.label])
    expected = predicted['probabilities'][mistake.place, labels[mistake.place]]
    assert of_truth[-1] == pytest.approx(expected, abs=1e-5)
    assert max(mistake.probabilities, key=mistake.probabilities.get) == mistake.predicted
  assert of_truth == sorted(of_truth)


def test_doubts_are_named(make_job, data_dir, report, tmp_path):
  """A training split tells nothing of new images; other images are not the job's."""
  path = make_job()
  [found], _ = report(path, '--subset', 'train', '--checkpoint', 'best')
  assert 'was trained with' in found['notes'][0]
  assert found['evaluation']['checkpoint'] == os.path.join(path, 'best', 'model.ckpt-8')
  other = shutil.copytree(data_dir, tmp_path / 'data')
  shutil.copy(other / 'validation.tfrecords', other / 'eval.tfrecords')
  content = json.loads((other / 'cifar10.json').read_text())
  content['subsets']['eval'] = {**content['subsets']['validation'], 'file': 'eval.tfrecords'}
  (other / 'cifar10.json').write_text(json.dumps(content))
  [found], _ = report(path, '--data-dir', other)
  assert found['evaluation']['examples'] == 64
  assert ["not the job's own" in note for note in found['notes']] == [True]
  [found], said = report(make_job(has_metrics=False), '--data-dir', data_dir, '--table')
  assert found['evaluation']['examples'] == 70
  assert 'A: There is no metrics.jsonl' in said


def test_what_differs_is_named(make_job, report):
  found, said = report(make_job('one'), make_job('other', learning_rate=0.3), '--table')
  differences = said.split('What differs')[1].splitlines()[1:]
  assert [line.split() for line in differences] == [['learning_rate', '0.1', '0.3']]
  assert len(found) == 2


def test_mistakes_are_refused(make_job, refusal, tmp_path, monkeypatch):
  path, out = make_job(), tmp_path / 'r.html'
  for said, *flags in (
    ('holds no job', tmp_path),
    ('there is no folder', path, '--out', tmp_path / 'no' / 'r.html'),
    ('eval.tfrecords is missing', path, '--data-dir', tmp_path),
    ('give --data-dir', path, '--data-dir', 'gone'),
    ('does not exist', path, '--checkpoint', 'gone'),
    ('it is empty', path, '--out', ''),
  ):
    assert said in refusal(*flags)
  for name in checkpoints.files_of(os.path.join(path, 'model.ckpt-8')):
    os.remove(name)
  assert 'checkpoint' in refusal(path, '--out', out)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  assert cifar10.report._INSTALLED_BY in refusal(path, '--out', out)
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('name', ['report', 'onnx', 'companions'])
def test_requirements_the_extra_and_what_is_said_are_the_same(name):
  lines = checkout.read(f'requirements-{name}.txt').splitlines()
  required = list(filter(None, (line.partition('#')[0].strip() for line in lines)))
  extra = re.search(rf'^{name} = \[(.*?)\]$', checkout.read('pyproject.toml'), re.M | re.S)[1]
  assert re.findall('"(.*?)"', extra) == [line.replace('"', "'") for line in required]
  said = {'report': cifar10.report._INSTALLED_BY, 'onnx': export._INSTALLED_BY}.get(name)
  assert not said or shlex.split(said) == ['pip', 'install', *required]


def test_numbers_need_no_libraries(make_job):
  code = """if True:
    import runpy, sys
    for name in ('jinja2', 'markupsafe', 'matplotlib'):
      sys.modules[name] = None  # An import of it fails.
    runpy.run_module('cifar10.report', run_name='__main__')
  """
  assert len(succeeded(checkout.python('-c', code, make_job(), '--table'))['jobs']) == 1


def test_a_history_is_curves_and_moments(make_job):
  found = History(metrics_log.read(make_job()))
  assert found.curve('accuracy') == [(2, 0.1), (4, 0.2), (6, 0.3), (8, 0.4)]
  assert found.curve('accuracy', 'validation') == [(4, 0.25), (8, 0.5)]
  assert found.curve('accuracy', 'eval') == []
  assert found.splits() == ['validation']
  assert (found.last_step, found.seconds, found.restarts) == (8, 80, [4])
  moments = list(found.moments())
  assert [(step, what) for _, step, what, _ in moments] == [
    (0, 'started'),
    (4, 'went on'),
    (5, 'control: learning_rate=0.05'),
    (8, 'ended (train_steps)'),
  ]
  assert moments[0][0] == '2027-01-15 08:00:00'  # 1.8e9 seconds
  assert moments[1][3].startswith('1 steps were made again; the run before was killed')


def test_what_counts():
  """Commands and starts are kept when training goes back; None is JSON's of a loss that is NaN."""
  kinds = [('start', 0), ('start', 35), ('control', 40), ('start', 20), ('train', 30)]
  assert History([{'event': kind, 'step': step} for kind, step in kinds]).last_step == 30
  losses = enumerate((1.0, None, 2.0))
  found = History([{'event': 'train', 'step': step, 'loss': loss} for step, loss in losses])
  assert found.curve('loss') == [(0, 1.0), (2, 2.0)]
