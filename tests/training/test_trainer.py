"""Whole jobs: train, resume, evaluate, export."""

import errno
import functools
import json
import os
import re
import shutil
import signal
import types

import gpus
import numpy as np
import pytest
import tensorflow as tf
from graphs import first_batches
from outcome import events, refused, succeeded
from recomputed import assert_close, values, variables

import generate_cifar10_tfrecords
from cifar10.cluster.tf_config import Cluster
from cifar10.core import devices, files
from cifar10.core.errors import Terminated
from cifar10.data import manifest
from cifar10.job import metrics_log, stop_record, variable_files
from cifar10.job import run as job_run
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import experiment, trainer

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 32]
ONE_THREAD = ['--num-intra-threads', 1, '--num-inter-threads', 1]


@pytest.fixture(scope='module')
def job(run_shared, data_dir, tmp_path_factory):
  """A job dir after 8 steps, and what the run printed.

  In this process: those that resume it have the same threads, and so the same sums.
  """
  folder = str(tmp_path_factory.mktemp('jobs') / 'job')
  flags = ['--train-steps', 8, '--eval-every-steps', 4, '--save-every-steps', 2]
  result = run_shared('--data-dir', data_dir, '--job-dir', folder, *SMALL, *flags, *ONE_THREAD)
  return folder, result


def test_ends_with_one_evaluation_of_the_test_set(job):
  folder, result = job
  line = succeeded(result)
  for said in result.stderr.splitlines():  # All of it is our own log.
    # Of GPUs TensorFlow itself tells in lines of its own.
    assert gpus.visible() or re.match(r'\d\d:\d\d:\d\d ', said)
  assert line['subset'] == 'eval'
  assert line['examples'] == 70  # 32 + 32 + 6: nothing dropped, nothing twice.
  assert line['global_step'] == 8
  assert line['checkpoint'] == os.path.join(folder, 'model.ckpt-8')
  assert 0 <= line['accuracy'] <= line['accuracy_top5'] <= 1
  assert line['loss'] > line['cross_entropy'] > 0
  assert set(line['accuracy_by_class']) == set(manifest.CIFAR10.classes)
  # Of seven images of each class: the mean over classes is the mean over images.
  mean = np.mean(list(line['accuracy_by_class'].values()))
  assert mean == pytest.approx(line['accuracy'], abs=1e-5)


def test_says_where_another_dtype_is_faster(job):
  fast, reason = devices.fast_dtype(gpus.visible())
  assert (f'half again as fast: {reason}' in job[1].stderr) == (fast == 'bfloat16')


def test_saves_and_evaluates_as_often_as_asked(job):
  folder, result = job
  saved = {name for name in os.listdir(folder) if name.endswith('.index')}
  assert saved == {f'model.ckpt-{step}.index' for step in (0, 2, 4, 6, 8)}
  assert not [name for name in os.listdir(folder) if name.endswith(('.meta', '.pbtxt'))]
  evaluated = re.findall(r'evaluated at step (\d+) on (\w+)', result.stderr)
  assert evaluated == [('4', 'validation'), ('8', 'validation'), ('8', 'eval')]
  assert os.path.isdir(os.path.join(folder, 'validation'))
  assert os.path.isdir(os.path.join(folder, 'eval'))


def test_epochs_in_place_of_steps(run_here, data_dir, tmp_path):
  """Of 256 images 16 steps of 16 an epoch: 1.5 epochs are 24 steps; on two towers."""
  flags = ['--train-epochs', 1.5, '--eval-every-steps', 8, '--num-cpu-towers', 2, '--sync']
  result = run_here('--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, *flags)
  assert succeeded(result)['global_step'] == 24
  assert re.findall(r'evaluated at step (\d+)', result.stderr) == ['8', '16', '24', '24']
  config = json.loads((tmp_path / 'config.json').read_text())
  assert (config['train_steps'], config['train_epochs']) == (24, 1.5)
  assert '2 tower(s)' in result.stderr
  assert '--sync is ignored' in result.stderr


def test_resuming_continues_the_same_run(job, run_here, data_dir, tmp_path):
  """4 steps and 4 more end with the variables of 8 steps: same data, same updates."""
  for steps in (4, 8):
    flags = ['--train-steps', steps, '--eval-every-steps', 100]
    result = run_here('--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, *flags, *ONE_THREAD)
    assert succeeded(result)['global_step'] == steps
  assert 'resuming at step 4 of 8' in result.stderr
  assert_close(job[0], tmp_path, 8, rtol=1e-4, atol=1e-5)
  before, after = variables(job[0], 4), variables(job[0], 8)
  assert any(np.abs(before[name] - after[name]).max() > 1e-3 for name in after)


def test_batches_start_where_the_session_stands(data_dir, tmp_path):
  """Not where a checkpoint says, which a worker need not see: at steps 0 and 3."""
  options = RunOptions(job_dir=str(tmp_path), data_dir=data_dir, num_gpus=0)
  process = job_run.begin(from_values({'num_layers': 8, 'train_batch_size': 16}), options)
  input_fn = functools.partial(experiment.input_fn, process, experiment.training_examples(process))
  whole, rest = (first_batches(input_fn, 5, step) for step in (0, 3))
  for (images, labels), (other_images, other_labels) in zip(whole[3:], rest):
    np.testing.assert_array_equal(images, other_images)
    np.testing.assert_array_equal(labels, other_labels)
  assert not np.array_equal(whole[0][0], rest[0][0])


@pytest.mark.slow
def test_evaluates_at_multiples_wherever_it_resumed(train, tmp_path):
  """And once more at each end. What a killed run saved and did not evaluate is evaluated first."""
  for steps in (3, 6):
    succeeded(train('--eval-every-steps', 2, '--train-steps', steps))

  def evaluated():
    found = events(tmp_path / 'job', 'evaluate')
    return [each['step'] for each in found if each['subset'] == 'validation']

  assert evaluated() == [2, 3, 4, 6]
  path = tmp_path / 'job' / 'metrics.jsonl'
  lines = path.read_text().splitlines(keepends=True)
  lost = {'event': 'evaluate', 'step': 6, 'subset': 'validation'}
  path.write_text(''.join(each for each in lines if not lost.items() <= json.loads(each).items()))
  succeeded(train('--eval-every-steps', 2, '--train-steps', 7))
  assert evaluated() == [2, 3, 4, 6, 7]


def test_an_evaluation_counts_when_the_best_are_kept(train, tmp_path, monkeypatch):
  """The disk is full when the checkpoint is to be copied: the same command makes up for it."""
  best = tmp_path / 'job' / 'best' / 'best.json'

  def full(*paths):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(files, 'copy', full)
  assert train('--train-steps', 2).returncode == 1
  assert not best.exists()
  monkeypatch.undo()
  succeeded(train('--train-steps', 2))
  assert json.loads(best.read_text())['global_step'] == 2
  evaluated = [(each['step'], each['subset']) for each in events(tmp_path / 'job', 'evaluate')]
  assert evaluated == [(2, 'validation'), (2, 'eval')]


def test_a_signal_after_a_stop_does_not_lift_it(tmp_path):
  """As while the last checkpoint is evaluated: the job has ended, whatever the signal says."""
  run = job_run.begin(from_values({}), RunOptions(str(tmp_path), str(tmp_path), num_gpus=0))
  run.stop('stopped by control at step 3', 'control')
  variable_files.write_checkpoint(f'{tmp_path}/model.ckpt-3', {}, 3)
  run.step = 4  # Which nobody has saved.
  trainer.tell_of_error(Terminated('SIGTERM'), run, [])
  assert stop_record.read(str(tmp_path)) == (run.stop_reason, 3)


@pytest.mark.parametrize(('there', 'lost'), [(9, 4), (3, 0)])
def test_lost_are_the_servers_steps_beyond_the_checkpoint(monkeypatch, there, lost):
  """The checkpoint's step is 5."""
  cluster = Cluster({'chief': ('a:1',), 'worker': ('b:1',), 'ps': ('c:1',)})
  run = types.SimpleNamespace(cluster=cluster, is_chief=True, step=5)
  monkeypatch.setattr(trainer, 'step_there', lambda cluster: there)
  trainer.JobEstimator._tell_lost_steps(types.SimpleNamespace(_run=run))
  assert run.steps_lost == lost


def test_a_finished_job_only_evaluates_again(job, train, run_here, tmp_path):
  """With other options; what they find is recorded once."""
  copy = shutil.copytree(job[0], tmp_path / 'job')
  printed, recorded = [], []
  for _ in range(2):
    result = train('--train-steps', 8, '--eval-every-steps', 4, '--tta', 'mirror')
    assert 'the job is at step 8: no step is left' in result.stderr
    printed.append(succeeded(result))
    recorded.append([each for each in events(copy, 'evaluate') if each['subset'] == 'eval'])
  assert {each['step'] for each in events(copy, 'end')} == {8}
  # On other threads: rounding may decide about one image in 70.
  before = succeeded(job[1])['accuracy']
  assert printed[0]['accuracy_without_tta'] == pytest.approx(before, abs=1.5 / 70)
  assert [len(each) for each in recorded] == [2, 2]
  assert 'accuracy_without_tta' not in recorded[1][0]
  for name in ('accuracy', 'accuracy_without_tta', 'loss', 'checkpoint'):
    assert recorded[1][1][name] == printed[1][name] == printed[0][name]
  for tta, name in (('mirror', 'accuracy'), ('none', 'accuracy_without_tta')):
    exported = succeeded(run_here('--job-dir', copy, '--mode', 'export', '--tta', tta))
    assert exported['accuracy']['eval'] == printed[0][name]


@pytest.mark.slow
@pytest.mark.usefixtures('hears_ctrl_c')
def test_a_signal_saves_and_the_same_command_goes_on(start_main, data_dir, tmp_path):
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, '--train-steps', 10**6]
  flags += ['--log-every', 1]
  step = 0
  for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
    with start_main(*flags, '--eval-every-steps', 10**6) as process:
      log = []
      for line in process.stderr:
        log.append(line)
        if 'images/s' in line and not any('images/s' in said for said in log[:-1]):
          process.send_signal(number)
    assert process.returncode == code, log
    assert any(f'{number.name}: finishing the batch' in line for line in log), log
    assert 'goes on from the last checkpoint' in log[-1]
    assert step == 0 or any(f'resuming at step {step:,} ' in line for line in log), log
    step_before, step = step, int(tf.train.latest_checkpoint(str(tmp_path)).rpartition('-')[2])
    assert step > step_before
    last = metrics_log.read(str(tmp_path))[-1]
    assert (last['event'], last['reason'], last['step']) == ('end', number.name, step)


def test_a_loss_that_is_no_number_ends_with_one_line(train, tmp_path):
  """A checkpoint is saved after each step, but none of weights that are no numbers."""
  said = refused(train('--train-steps', 50, '--save-every-steps', 1, '--learning-rate', '1e30'))
  assert 'the loss became NaN with --learning-rate 1e+30' in said
  [end] = events(tmp_path / 'job', 'end')
  assert end['reason'] == 'error'
  assert 'NaN' in end['message']
  for path in tmp_path.glob('job/model.ckpt-*.index'):
    for name, value in values(path.with_suffix('')).items():
      assert np.isfinite(value).all(), (path.name, name)


FAST = ['--recipe', 'fast94', '--widths', '24,24,32', '--train-batch-size', 32]


@pytest.mark.slow
@pytest.mark.parametrize('recipe', ['fast94', pytest.param('fast96', marks=pytest.mark.long)])
def test_a_fast_recipe_trains_evaluates_and_resumes(run_main, run_here, data_dir, tmp_path, recipe):
  """2 steps and 2 more end with the variables, slow ones and averages included, of 4 steps."""
  # The schedules are functions of --train-steps: the first run is stopped by its own checkpoint.
  common = ['--data-dir', data_dir, *FAST, '--recipe', recipe, *ONE_THREAD, '--train-steps', 4]
  common += ['--lookahead-steps', 2, '--ema-decay', 0.3, '--save-every-steps', 2]
  common += ['--resolutions', '16,0.25,24,0.75']  # For one step and for two.
  result = run_main(*common, '--job-dir', tmp_path / 'whole')
  line = succeeded(result)
  assert re.search('--dtype auto is (float32|bfloat16): ', result.stderr)
  assert 'XLA' not in result.stderr
  # The test set is what it evaluated on the way: once is enough.
  assert len(re.findall('evaluated at step 4', result.stderr)) == 1
  # The job dir knows the network, the views, the precision and what the loss is made of.
  evaluate = ['--data-dir', data_dir, '--job-dir', tmp_path / 'whole', '--mode', 'evaluate']
  again, plain = (succeeded(run_here(*evaluate, *more)) for more in ([], ['--tta', 'none']))
  assert again.keys() == line.keys() - {'ended_by'}
  # Rounding may decide about one image.
  assert again['accuracy'] == pytest.approx(line['accuracy'], abs=1.5 / 70)
  assert again['loss'] == pytest.approx(line['loss'], rel=1e-3)
  assert plain['accuracy'] == pytest.approx(line['accuracy_without_tta'], abs=1.5 / 70)
  assert 'accuracy_without_tta' not in plain
  shutil.copytree(tmp_path / 'whole', tmp_path / 'parts')
  os.remove(tmp_path / 'parts' / 'model.ckpt-4.index')
  (tmp_path / 'parts' / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-2"')
  resumed = run_main(*common, '--job-dir', tmp_path / 'parts', '--mode', 'train')
  assert succeeded(resumed)['global_step'] == 4
  assert 'resuming at step 2 of 4' in resumed.stderr
  assert_close(tmp_path / 'whole', tmp_path / 'parts', 4)
  names = variables(tmp_path / 'parts', 4)
  assert any(name.endswith('/slow') for name in names)
  assert any(name.endswith('/conv1/kernel/ExponentialMovingAverage') for name in names)


@pytest.mark.slow
def test_the_program_learns(run_here, tmp_path):
  """Textures that no linear model tells apart: three seeds reached 99 %, and chance is 10 %."""
  synthetic_data = ['--data-dir', tmp_path / 'data', '--synthetic', 400]
  assert run_here(*synthetic_data, command=generate_cifar10_tfrecords).returncode == 0
  schedule = ['--learning-rate', 0.05, '--lr-values', '1,0.1', '--lr-boundaries-epochs', 3.6]
  flags = ['--num-layers', 8, *schedule, '--train-batch-size', 32]
  job_dir = ['--data-dir', tmp_path / 'data', '--job-dir', tmp_path / 'job']
  assert succeeded(run_here(*job_dir, *flags, '--train-steps', 250))['accuracy'] > 0.9
