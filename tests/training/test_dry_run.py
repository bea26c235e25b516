"""--dry-run: what it says is right, and it writes nothing."""

import json
import os
import shutil
import tempfile

import pytest
from outcome import refused, succeeded

from cifar10.job import stop_record

SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--num-gpus', 0]
# Parameters by hand in tests/test_checkpoint.py. A layer of n x n x channels takes 3 x 3 x channels
# before it for each: 32 x 32 x 16 x 9 (3 + 2 x 16), 16 x 16 x 32 x 9 (16 + 32), 8 x 8 x 64 x 9
# (32 + 64), and the dense layer's 64 x 10. Shortcuts average and pad.
RESNET_8 = {'network': 'ResNet-8', 'trainable_parameters': 75_290}
RESNET_8['multiplications_per_image'] = 5_160_960 + 2 * 3_538_944 + 640


@pytest.fixture(autouse=True)
def scratch(monkeypatch, tmp_path):
  """Where temporary folders go: empty again after every test."""
  folder = tmp_path / 'scratch'
  folder.mkdir()
  monkeypatch.setattr(tempfile, 'tempdir', str(folder))
  yield
  assert os.listdir(folder) == []


def contents(folder):
  """Each file's bytes and when it was written, and when the folders were."""
  found = {}
  for path in [folder, *folder.rglob('*')]:
    found[path] = (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
  return found


def test_a_new_job(run_here, data_dir, tmp_path):
  """256 examples in batches of 16: 16 steps an epoch, and 100 steps are 6.25 epochs.

  Half of the steps have images of half the side, and take a quarter of the time: 62.5 whole ones.
  """
  job = tmp_path / 'job'
  flags = [*SMALL, '--train-steps', 100, '--resolutions', '16,0.5', '--dry-run']
  line = json.loads(run_here('--data-dir', data_dir, '--job-dir', job, *flags).stdout)  # One.
  plan = {'examples_per_epoch': 256, 'examples_per_step': 16, 'steps_per_epoch': 16}
  plan |= {'global_step': 0, 'train_steps': 100, 'epochs': 6.25, 'timed_steps': 10}
  assert line.items() >= {'dry_run': True, **RESNET_8, **plan}.items()
  assert line['images_per_second'] == pytest.approx(16 / line['seconds_per_step'], rel=0.01)
  assert line['training_seconds'] == pytest.approx(62.5 * line['seconds_per_step'], abs=0.1)
  assert not job.exists()


@pytest.mark.parametrize(('last_step', 'has_ended', 'left'), [(20, 0, 12), (4, 0, 0), (20, 1, 0)])
def test_a_job_that_goes_on(run_here, data_dir, old_job, tmp_path, last_step, has_ended, left):  # noqa: PLR0917
  """From step 8; the job dir stays as it was, byte for byte. What it began with is gone."""
  if has_ended:
    stop_record.write(str(old_job), stop_record.StopReason('stop_at_accuracy', 'm', 0.9), 8)
  before = contents(old_job)
  flags = ['--train-batch-size', 16, '--train-steps', last_step, '--num-gpus', 0, '--dry-run']
  flags += ['--stop-at-accuracy', 0.9, '--warm-start-from', tmp_path / 'gone']
  result = run_here('--data-dir', data_dir, '--job-dir', old_job, *flags)
  line = succeeded(result)
  assert (line['network'], line['global_step'], line['train_steps']) == ('ResNet-8', 8, last_step)
  assert line['training_seconds'] == pytest.approx(left * line['seconds_per_step'], abs=0.1)
  assert f'unlike before in this job: train_steps 8 -> {last_step}' in result.stderr
  assert ('it goes on with a higher --stop-at-accuracy' in result.stderr) == has_ended
  assert contents(old_job) == before


def cluster(task_type):
  tasks = {'chief': ['a:1'], 'worker': ['b:1'], 'ps': ['c:1'], 'evaluator': ['d:1']}
  return json.dumps({'cluster': tasks, 'task': {'type': task_type, 'index': 0}})


@pytest.mark.slow
def test_a_worker_times_the_network_alone(monkeypatch, run_here, data_dir, tmp_path):
  """Two replicas' batches make an update: 256 / (2 x 16) = 8 steps an epoch. Nobody else is up."""
  monkeypatch.setenv('TF_CONFIG', cluster('worker'))
  flags = [*SMALL, '--train-steps', 100, '--sync', '--dry-run']
  line = succeeded(run_here('--data-dir', data_dir, '--job-dir', tmp_path / 'job', *flags))
  assert (line['task'], line['steps_per_epoch'], line['epochs']) == ('worker 0', 8, 12.5)
  assert (line['timed_steps'], 'training_seconds' in line) == (10, False)
  assert not (tmp_path / 'job').exists()


@pytest.mark.parametrize('task', ['ps', 'evaluator'])
def test_others_time_nothing(monkeypatch, run_here, data_dir, tmp_path, task):
  """A parameter server may have no data, either."""
  monkeypatch.setenv('TF_CONFIG', cluster(task))
  here = tmp_path / 'none' if task == 'ps' else data_dir
  line = succeeded(run_here('--data-dir', here, '--job-dir', tmp_path / 'job', *SMALL, '--dry-run'))
  assert line.items() >= {'task': f'{task} 0', **RESNET_8}.items()
  assert 'timed_steps' not in line


def test_refuses_what_a_training_refuses(run_here, data_dir, tmp_path):
  job = tmp_path / 'job'

  def refusal(data, *flags):
    return refused(run_here('--data-dir', data, '--job-dir', job, *SMALL, *flags, '--dry-run'))

  assert 'is missing' in refusal(tmp_path)
  assert '16 is not divisible by 3 towers' in refusal(data_dir, '--num-cpu-towers', 3)
  assert 'no_such_module' in refusal(data_dir, '--callback', 'no_such_module:make')
  without_eval = shutil.copytree(data_dir, tmp_path / 'data')
  os.remove(without_eval / 'eval.tfrecords')
  assert 'eval.tfrecords is missing' in refusal(without_eval)
  job.mkdir()
  (job / 'config.json').write_text('{"num_layers": 8, "data": {"train": "other"}}')
  (job / 'checkpoint').write_text('')  # So that it has begun.
  assert 'was trained on other data' in refusal(data_dir)
  assert sorted(os.listdir(job)) == ['checkpoint', 'config.json']
