"""One process trains in a job dir; others may look, and find what it deletes under them gone."""

import os
import shutil

import pytest
from outcome import refused, succeeded

from cifar10.job import job_config
from cifar10.training import estimator

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.fixture(scope='module')
def trained(run_shared, data_dir, tmp_path_factory):
  """A job dir with the checkpoints of steps 0, 2 and 4."""
  job = tmp_path_factory.mktemp('trained') / 'job'
  more = ['--mode', 'train', '--train-steps', 4, '--save-every-steps', 2]
  succeeded(run_shared('--data-dir', data_dir, '--job-dir', job, *SMALL, *more))
  return job


@pytest.fixture
def job(trained, tmp_path):
  return shutil.copytree(trained, tmp_path / 'job')


def point_at(job, step):
  (job / 'checkpoint').write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')


@pytest.mark.slow
def test_a_second_training_is_refused_and_an_evaluation_is_not(run_here, data_dir, job):
  flags = ['--data-dir', data_dir, '--job-dir', job]
  before = sorted(job.iterdir())
  with job_config.training_lock(str(job)):
    line = refused(run_here(*flags, *SMALL, '--train-steps', 6))
    assert line.startswith(f'error: --job-dir {job}: process {os.getpid()} on ')
    assert line.endswith(' trains there; wait for its end, or name another')
    assert sorted(job.iterdir()) == before
    assert succeeded(run_here(*flags, '--mode', 'evaluate'))['global_step'] == 4
  assert succeeded(run_here(*flags, *SMALL, '--train-steps', 5))['global_step'] == 5


def test_what_a_killed_process_was_saving_goes(train, job):
  """Under the names that TensorFlow and this program write to before a file is whole."""
  (job / 'model.ckpt-6_temp').mkdir()
  (job / 'model.ckpt-6_temp' / 'part-00000-of-00001.index').write_bytes(b'half')
  names = ['model.ckpt-6.index.tempstate17', 'checkpoint.tmp0a']
  for name in (
    *names,
    *(f'{whole}.17.tmp' for whole in ('checkpoint', 'config.json', 'metrics.jsonl')),
  ):
    (job / name).write_bytes(b'half')
  succeeded(train('--mode', 'train', '--train-steps', 5))
  assert not [path.name for path in job.iterdir() if 'temp' in path.name or 'tmp' in path.name]


@pytest.mark.parametrize('mode', ['evaluate', 'export', 'predict'])
def test_another_command_takes_the_next_where_its_checkpoint_is_deleted(
  run_here, data_dir, job, monkeypatch, mode
):
  """As by a training that keeps one, between the look for the latest and the reading of it."""
  point_at(job, 2)
  original, calls = estimator.checkpoint, []

  def checkpoint(run):
    found = original(run)
    if not calls:
      point_at(job, 4)
      for path in job.glob('model.ckpt-2.*'):
        path.unlink()
    calls.append(found)
    return found

  monkeypatch.setattr(estimator, 'checkpoint', checkpoint)
  more = ['--subset', 'eval'] if mode == 'predict' else []
  result = run_here('--data-dir', data_dir, '--job-dir', job, '--mode', mode, *more)
  assert succeeded(result).get('global_step', 4) == 4
  assert len(calls) == 2
  assert f'{job}/model.ckpt-2 was deleted before it was read; taking the next' in result.stderr
