"""The command: its numbers are the program's own, and it says what is missing."""

import importlib.util
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import string

import checkout
import numpy as np
import pytest
from outcome import refused, succeeded

import cifar10.report
from cifar10.data.input_pipeline import RecordDataset
from cifar10.exporters import onnx_file
from cifar10.job import adopted_config, checkpoints, job_config, metrics_log
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.reporting import charts, job_report
from cifar10.training.process import Process


@pytest.fixture
def report(run_here):
  """Runs the command -> the last line's JSON, and what it said."""

  def run(*flags):
    ran = run_here(*flags, command=cifar10.report)
    return succeeded(ran), ran.stderr

  return run


@pytest.fixture
def refusal(run_here):
  """Runs the command -> the one line that refuses."""
  return lambda *flags: refused(run_here(*flags, command=cifar10.report), at_once=True)


def test_numbers_are_those_of_an_evaluation(make_job, data_dir, report, run_here):
  path = make_job()
  before = sorted(os.listdir(path))
  result, said = report(path, '--table')
  assert sorted(os.listdir(path)) == before  # A report changes nothing.
  flags = ['--data-dir', data_dir, '--job-dir', path, '--mode', 'evaluate', '--num-gpus', 0]
  expected = json.loads(run_here(*flags).stdout)
  [found] = result['jobs']
  evaluation = found['evaluation']
  for name in ('accuracy', 'accuracy_top5', 'cross_entropy'):
    assert evaluation[name]['value'] == pytest.approx(expected[name], abs=1e-5)
    assert evaluation[name]['low'] < expected[name] < evaluation[name]['high']
  by_class = {name: each['accuracy']['value'] for name, each in evaluation['classes'].items()}
  assert by_class == pytest.approx(expected['accuracy_by_class'], abs=1e-5)
  assert (evaluation['step'], evaluation['examples']) == (8, 70)
  assert np.sum(evaluation['confusion_matrix']) == 70
  assert np.sum(evaluation['confusion_matrix'], 1).tolist() == [7] * 10
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
  result, _ = report(path, '--table', '--out', tmp_path / 'report.html')
  [found] = result['jobs']
  evaluation = found['evaluation']
  assert (evaluation['weights'], evaluation['step'], found['restarts']) == ('ema', 4, 1)
  assert evaluation['accuracy']['value'] == pytest.approx(expected['accuracy'], abs=1e-5)
  assert evaluation['cross_entropy']['value'] == pytest.approx(expected['cross_entropy'], abs=1e-4)
  assert found['best']['step'] in (2, 4)
  page = (tmp_path / 'report.html').read_text(encoding='utf-8')
  moments = re.findall(r'<td>(started|went on|ended \(train_steps\))</td>', page)
  assert moments == ['started', 'ended (train_steps)', 'went on', 'ended (train_steps)']


def test_mistakes_are_of_the_images_that_they_show(make_job, data_dir):
  """Each is in the split's file where it is said to be, with its own label."""
  path = make_job()
  job = job_report.collect('A', path, job_report.Wanted(split='validation'))
  images, labels = RecordDataset(data_dir, 'validation').all_examples()
  classes = job.data.classes
  hparams = adopted_config.adopt_config({}, job_config.read_config(path), path, training=False)
  options = RunOptions(job_dir=path, data_dir=data_dir, subset='validation')
  predictions = job_report.read_predictions(Process(hparams, options), images)
  wrong = np.sum(predictions.classes != labels)
  assert job.evaluation.num_mistakes == wrong
  assert len(job.evaluation.mistakes) == min(wrong, 40)
  of_truth = []
  for mistake in job.evaluation.mistakes:
    np.testing.assert_array_equal(mistake.image, images[mistake.place])
    assert mistake.label == classes[labels[mistake.place]]
    assert mistake.predicted == classes[predictions.classes[mistake.place]] != mistake.label
    assert sum(value for _, value in mistake.probabilities) == pytest.approx(1, abs=1e-5)
    of_truth.append(dict(mistake.probabilities)[mistake.label])
  assert of_truth == sorted(of_truth)


@pytest.mark.slow
def test_a_page_and_a_table_in_one(make_job, report, tmp_path):
  file = tmp_path / 'report.html'
  result, said = report(make_job(), '--out', file, '--table')
  assert (result['report'], result['bytes']) == (str(file), file.stat().st_size)
  assert os.listdir(tmp_path) == ['report.html']
  assert 'Wilson' in said


def test_a_checkpoint_that_training_deletes_is_followed_by_the_next(make_job, report, monkeypatch):
  path = make_job()
  read = checkpoints.global_step

  def rotated(checkpoint):
    """As the training of another process does it, once, between finding and reading."""
    if checkpoint.endswith('-8'):
      for name in checkpoints.files_of(checkpoint):
        os.rename(name, name.replace('ckpt-8', 'ckpt-9'))
      with open(os.path.join(path, 'checkpoint'), 'w', encoding='utf-8') as file:
        file.write('model_checkpoint_path: "model.ckpt-9"\n')
    return read(checkpoint)

  monkeypatch.setattr(checkpoints, 'global_step', rotated)
  result, said = report(path, '--table')
  assert 'model.ckpt-8 was deleted before it was read; taking the next' in said
  assert result['jobs'][0]['evaluation']['checkpoint'].endswith('model.ckpt-9')


def test_without_checkpoints_a_job_has_its_own_evaluation(make_job, report):
  """TensorFlow's list still names one."""
  path = make_job()
  for name in checkpoints.files_of(os.path.join(path, 'model.ckpt-8')):
    os.remove(name)
  result, _ = report(path, '--table')
  [found] = result['jobs']
  assert found['evaluation']['accuracy']['value'] == 0.5
  assert 'could not be made' in found['notes'][0]


def test_a_dumped_average_has_the_weights_of_the_file(make_job, report, data_dir, tmp_path):
  """The job's last run evaluated averages, which the file has under the weights' own names."""
  path = make_job()
  [start, *_] = metrics_log.read(path)
  last = {**start, 'step': 8, 'resumed': True, 'data_dir': data_dir, 'options': {'use_ema': True}}
  metrics_log.append(path, last)
  evaluated = {'subset': 'eval', 'accuracy': 0.5, 'weights': 'ema'}
  metrics_log.append(path, {'event': 'evaluate', 'step': 8, **evaluated})
  copy = str(tmp_path / 'dumped' / 'model.ckpt')
  for name in checkpoints.files_of(os.path.join(path, 'model.ckpt-8')):
    os.makedirs(tmp_path / 'dumped', exist_ok=True)
    shutil.copy(name, name.replace(os.path.join(path, 'model.ckpt-8'), copy))
  result, _ = report(path, '--table', '--checkpoint', copy)
  assert result['jobs'][0]['evaluation']['checkpoint'] == copy


def test_what_was_measured_of_a_checkpoint_is_not_said_of_another(make_job, report):
  path, other = make_job(), make_job('other')
  recorded = {'subset': 'eval', 'accuracy': 0.5, 'accuracy_without_tta': 0.4}
  metrics_log.append(path, {'event': 'evaluate', 'step': 8, **recorded})
  for name, known in (('best', True), (os.path.join(other, 'model.ckpt-8'), False)):
    result, _ = report(path, '--table', '--checkpoint', name)
    assert bool(result['jobs'][0]['evaluation']['accuracy_without_tta']) == known


def test_without_its_data_a_job_has_its_own_evaluation(make_job, report, tmp_path):
  path = make_job()
  events = [event for event in metrics_log.read(path) if event['event'] != 'start']
  os.remove(os.path.join(path, metrics_log.NAME))
  start = {'event': 'start', 'step': 0, 'data_dir': '/gone'}
  matrix = [[3 if row == column else 0 for column in range(10)] for row in range(10)]
  recorded = {'event': 'evaluate', 'step': 8, 'subset': 'eval', 'confusion_matrix': matrix}
  for event in (start, *events, {**recorded, 'accuracy': 1.0, 'examples': 30}):
    metrics_log.append(path, event)
  file = tmp_path / 'report.html'
  result, _ = report(path, '--out', file)
  [found] = result['jobs']
  assert found['notes'] == [
    'Worst mistakes and calibration could not be made: its data dir /gone is not there; give '
    '--data-dir DIR.'
  ]
  assert found['evaluation']['accuracy']['value'] == 1
  # Wilson's lower bound of 30 of 30: 1 / (1 + 1.96^2 / 30).
  assert found['evaluation']['accuracy']['low'] == pytest.approx(1 / (1 + 3.8415 / 30), abs=1e-4)
  assert found['evaluation']['calibration_error'] is None
  page = file.read_text(encoding='utf-8')
  assert '/gone is not there' in page
  assert 'Confusion matrix' in page
  assert 'Worst mistakes</h2>' not in page


@pytest.mark.parametrize(
  'wrong', [{'confusion_matrix': [[-1, 3], [0, 1]]}, {'accuracy': 10**400}, {'accuracy': math.nan}]
)
def test_recorded_numbers_that_cannot_be_are_left_out(wrong):
  found = job_report.from_event({'step': 8, 'subset': 'eval', **wrong}, ['a', 'b'])
  assert found.matrix is None
  assert found.accuracy is None
  assert not found.classes


def test_an_older_job_has_what_is_there(make_job, data_dir, report):
  path = make_job(has_metrics=False)
  result, said = report(path, '--table', '--data-dir', data_dir)
  assert result['jobs'][0]['evaluation']['examples'] == 70
  assert 'There is no metrics.jsonl' in said
  result, said = report(path, '--table')
  assert result['jobs'][0]['evaluation'] is None
  assert 'give --data-dir DIR' in said


def test_doubts_are_named(make_job, data_dir, report, tmp_path):
  """A training split tells nothing of new images; other images are not the job's."""
  path = make_job()
  result, _ = report(path, '--table', '--subset', 'train')
  assert 'was trained with' in result['jobs'][0]['notes'][0]
  for name in os.listdir(data_dir):
    shutil.copy(os.path.join(data_dir, name), tmp_path)
  shutil.copy(tmp_path / 'validation.tfrecords', tmp_path / 'eval.tfrecords')
  content = json.loads((tmp_path / 'cifar10.json').read_text())
  content['subsets']['eval'] = {**content['subsets']['validation'], 'file': 'eval.tfrecords'}
  (tmp_path / 'cifar10.json').write_text(json.dumps(content))
  result, _ = report(path, '--table', '--data-dir', tmp_path)
  assert result['jobs'][0]['evaluation']['examples'] == 64
  [note] = result['jobs'][0]['notes']
  assert "not the job's own" in note


def test_a_job_with_a_source_was_not_trained_with_the_records(make_job, data_dir, tmp_path):
  """And a source for validation is no other data dir's records."""
  path = make_job()
  found = {
    split: job_report._doubts(path, HParams(source='m:f', validation_source='m:g'), where, split)
    for split, where in [('train', data_dir), ('validation', str(tmp_path))]
  }
  assert found == {'train': [], 'validation': []}


def test_as_many_lines_as_jobs_look_otherwise():
  letters = string.ascii_uppercase  # The names of as many jobs as the command takes.
  looks = {charts._looks(charts.Line(letter, [], style)) for style, letter in enumerate(letters)}
  assert len(looks) == len(letters)


def test_what_differs_is_named(make_job, report):
  one, other = make_job('one', has_data=False), make_job('other', has_data=False)
  config = pathlib.Path(other, 'config.json')
  config.write_text(json.dumps(json.loads(config.read_text()) | {'learning_rate': 0.3}))
  result, said = report(one, other, '--table')
  differences = said.split('What differs')[1].split('\n\n')[0].splitlines()[1:]
  assert [line.split() for line in differences] == [['learning_rate', '0.1', '0.3']]
  assert len(result['jobs']) == 2


def test_the_best_checkpoint(make_job, data_dir, report, refusal):
  path = make_job()
  result, _ = report(path, '--table', '--checkpoint', 'best')
  evaluated = result['jobs'][0]['evaluation']
  assert evaluated['checkpoint'] == os.path.join(path, 'best', 'model.ckpt-8')
  without = make_job(has_metrics=False)
  flags = ['--table', '--data-dir', data_dir, '--checkpoint']
  assert 'has none' in refusal(without, *flags, 'best')
  assert 'belongs to one job' in refusal(path, path, '--table', '--checkpoint', 'model.ckpt-8')


def test_mistakes_are_refused(make_job, refusal, tmp_path, monkeypatch):
  path = make_job()
  assert 'nothing to make' in refusal(path)
  assert 'holds no job' in refusal(tmp_path, '--table')
  assert 'there is no folder' in refusal(path, '--out', tmp_path / 'no' / 'r.html')
  assert 'is a folder' in refusal(path, '--out', tmp_path)
  assert 'eval.tfrecords is missing' in refusal(path, '--table', '--data-dir', tmp_path)
  for flag in ('--out', '--checkpoint', '--data-dir'):
    assert f'{flag} is empty; give a path' in refusal(path, '--table', flag, '')
  assert 'does not exist' in refusal(path, '--table', '--checkpoint', 'gone')
  find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util, 'find_spec', lambda name: None if name == 'jinja2' else find_spec(name)
  )
  said = refusal(path, '--out', tmp_path / 'r.html')
  assert 'needs jinja2' in said
  assert cifar10.report._INSTALLED_BY in said
  assert os.listdir(tmp_path) == []


def required(name):
  """The lines of a file of requirements, without comments."""
  lines = checkout.read(f'requirements-{name}.txt').splitlines()
  return list(filter(None, (line.partition('#')[0].strip() for line in lines)))


def test_what_is_to_be_installed_is_what_the_file_has():
  """An installed program has no such file."""
  commands = {'report': cifar10.report._INSTALLED_BY, 'onnx': onnx_file._INSTALLED_BY}
  for name, command in commands.items():
    assert shlex.split(command) == ['pip', 'install', *required(name)]


def test_a_table_needs_no_libraries(make_job):
  code = """if True:
    import runpy, sys
    for name in ('jinja2', 'markupsafe', 'matplotlib', 'PIL'):
      sys.modules[name] = None  # An import of it fails.
    runpy.run_module('cifar10.report', run_name='__main__')
  """
  ran = checkout.python('-c', code, make_job(has_data=False), '--table')
  assert len(succeeded(ran)['jobs']) == 1


@pytest.mark.slow
def test_the_backend_of_a_notebook_need_not_be_installed(make_job, tmp_path):
  """Jupyter names its own for all that it starts, where matplotlib may have no such package."""
  out = tmp_path / 'r.html'
  words = ['-m', 'cifar10.report', make_job(has_data=False), '--out', out]
  ran = checkout.python(*words, env={**os.environ, 'MPLBACKEND': 'not_there'})
  assert ran.returncode == 0, ran.stderr
  assert os.listdir(tmp_path) == ['r.html']


@pytest.mark.parametrize('name', ['report', 'onnx', 'companions'])
def test_the_extra_has_the_requirements_files_lines(name):
  extra = re.search(rf'^{name} = \[(.*?)\]$', checkout.read('pyproject.toml'), re.M | re.S)[1]
  assert re.findall('"(.*?)"', extra) == [line.replace('"', "'") for line in required(name)]
