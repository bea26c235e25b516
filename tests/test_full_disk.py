"""Disks that fill up, folders that vanish or turn read-only: one line, and how it goes on.

tests/faults.py fills a training's and a conversion's, at every call that writes.
"""

import contextlib
import os
import shutil
import subprocess
import threading

import checkout
import pytest
from outcome import events, succeeded, until

from cifar10.job import checkpoints

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.fixture
def disk(tmp_path):
  """The folder of a small disk."""
  if not shutil.which('mount'):
    pytest.skip('a small disk needs mount, which is not here')
  folder = tmp_path / 'disk'
  folder.mkdir()
  made = checkout.run('mount', '-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', folder)
  if made.returncode:
    pytest.skip(f'a small disk needs root, and the right to mount: {made.stderr.strip()}')
  yield folder
  subprocess.run(['umount', '--lazy', folder], check=True)


def failed(result, line):
  """Exit code 1 and one line of an error, which a traceback would have, too."""
  assert result.returncode == 1, result.stderr
  errors = [each for each in result.stderr.splitlines() if 'rror' in each]
  assert errors == [f'error: {line}'], result.stderr


def test_predicting(run_main, old_job, disk):
  """In a process of its own, where nothing catches what Python says of an object's end."""
  with contextlib.suppress(OSError), open(disk / 'filler', 'wb', buffering=0) as file:
    while True:
      file.write(bytes(4096))
  path, image = disk / 'a.jsonl', os.path.join(checkout.ROOT, 'tests', 'hostile', 'grey.png')
  result = run_main('--job-dir', old_job, '--mode', 'predict', '--images', image, '--out', path)
  said = 'cannot be used (No space left on device); make room, and the same command goes on'
  failed(result, f'--out {path} {said}')
  assert os.listdir(disk) == ['filler']


def test_results_to_a_full_disk(old_job, data_dir):
  """Predictions and results are what standard output is led to."""
  flags = ['--mode', 'evaluate', '--job-dir', old_job, '--data-dir', data_dir]
  with open('/dev/full', 'w', encoding='utf-8') as full:
    streams = {'stdout': full, 'stderr': subprocess.PIPE, 'capture_output': False}
    result = checkout.python('cifar10_main.py', *flags, **streams)
  failed(result, 'standard output cannot be written (No space left on device)')


def test_evaluating_a_job_that_may_only_be_read(run_here, old_job, data_dir, disk):
  """TensorFlow would not say that it cannot write an event file into a folder that is there."""
  job = shutil.copytree(old_job, disk / 'job')
  (job / 'eval').mkdir()
  subprocess.run(['mount', '-o', 'remount,ro', disk], check=True)
  result = run_here('--mode', 'evaluate', '--job-dir', job, '--data-dir', data_dir)
  assert succeeded(result)['subset'] == 'eval'
  said = f'not kept for TensorBoard: --job-dir {job} cannot be used (Read-only file system); allow'
  assert said in result.stderr


@pytest.mark.slow
def test_a_job_dir_that_vanishes(run_main, run_here, data_dir, tmp_path):
  """Moved away while it trains, and back: it goes on from its checkpoint."""
  job, away = tmp_path / 'job', tmp_path / 'away'
  flags = ['--mode', 'train', '--data-dir', data_dir, '--job-dir', job, *SMALL]

  def move():
    until(lambda: events(job, 'train'), 200)
    job.rename(away)

  mover = threading.Thread(target=move)
  mover.start()
  result = run_main(*flags, '--train-steps', 10**6, '--save-every-steps', 10, timeout=250)
  mover.join()
  failed(result, f'--job-dir {job} has vanished; put it back, and the same command goes on')
  saved = checkpoints.latest_step(str(away))
  away.rename(job)
  again = run_here(*flags, '--train-steps', saved + 5)
  assert succeeded(again)['global_step'] == saved + 5
  assert f'resuming at step {saved} of' in again.stderr
