"""Folders whose names TensorFlow takes for patterns: a sweep writes `runs/lr[0.1]`."""

import os
import shutil

import pytest
from outcome import refused, succeeded

import generate_cifar10_tfrecords
from cifar10 import checkpoint, local_cluster

ODD = 'lr[0.1]*?\\x'
SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.mark.parametrize('name', ['lr[0.1]', 'a\\b', 'x*'])
def test_a_new_job_dir_is_refused_before_anything_is_written(run_here, data_dir, tmp_path, name):
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path / 'runs' / name, *SMALL]
  for command in ([*flags], [*flags, '--dry-run']):
    line = refused(run_here(*command), at_once=True)
    assert line.startswith(f'error: --job-dir {tmp_path}/runs/{name}: TensorFlow takes [ ] * ? and')
  refused(run_here('--workers', 0, '--ps', 1, '--', *flags, command=local_cluster))
  assert os.listdir(tmp_path) == []


def test_an_old_job_is_told_to_move(run_here, old_job, data_dir, tmp_path):
  odd = tmp_path / ODD
  old_job.rename(odd)
  here, says = ['--job-dir', odd], 'name another folder, and move there what this one has'
  assert says in refused(run_here(*here, '--mode', 'evaluate', '--data-dir', data_dir))
  assert says in refused(run_here('list', odd, command=checkpoint))
  moved = shutil.move(odd, tmp_path / 'moved')
  assert succeeded(run_here('list', moved, command=checkpoint))['global_step'] == 8
  out = ['dump', moved, '--out', tmp_path / 'a[1]']
  assert says in refused(run_here(*out, command=checkpoint))


@pytest.mark.parametrize('job', ['jo//b///', './b/.', " '$HOME{x}%s ünï\n"])
def test_other_names_mean_nothing(run_here, tmp_path, monkeypatch, job):
  """And data may lie in a folder of any name."""
  monkeypatch.chdir(tmp_path)
  data = f'{ODD}/data'
  made = run_here('--data-dir', data, '--synthetic', 20, command=generate_cifar10_tfrecords)
  assert succeeded(made)['examples']['train'] == 80
  flags = ['--data-dir', data, '--job-dir', job, *SMALL, '--train-steps', 2]
  last = succeeded(run_here(*flags))
  assert last['global_step'] == 2
  assert succeeded(run_here('--data-dir', data, '--job-dir', job, '--mode', 'evaluate'))['loss']
  assert sorted(os.listdir(tmp_path)) == sorted([ODD, os.path.normpath(job).split('/')[0]])
