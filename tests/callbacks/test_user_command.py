"""The user's own commands after an evaluation and at the end: real processes."""

import logging
import shlex
import sys
import threading
import time
import types

import pytest

from cifar10.callbacks import user_command
from cifar10.callbacks.base import Evaluation
from cifar10.core.errors import InputError
from cifar10.options.run_options import RunOptions

RESULT = {'accuracy': 0.75, 'loss': 1.5, 'examples': 64}


def make_run(is_chief=True, stopping=False, **options):
  run = types.SimpleNamespace(options=RunOptions(job_dir='a job', **options), is_chief=is_chief)
  run.job_dir = 'a job'
  run.monitor = types.SimpleNamespace(stopping=stopping)
  return run


def hear(command):
  run = make_run(on_evaluation=command)
  made = Evaluation(40, 'validation', 'a job/model.ckpt-40', RESULT, [[64]], True)
  user_command.make(run).on_evaluate_end(made)


def test_it_has_the_values_in_its_environment(tmp_path, caplog):
  """And its arguments as they are: no shell has seen `$HOME;`."""
  path = tmp_path / 'said'
  program = "import os, sys; open(sys.argv[1], 'w').write(repr((sys.argv[2], sorted("
  program += "item for item in os.environ.items() if item[0].startswith('CIFAR10_') "
  program += "and item[0] != 'CIFAR10_ARCHIVE'))))"
  caplog.set_level(logging.INFO, logger='cifar10')
  hear(f'{shlex.quote(sys.executable)} -c "{program}" {shlex.quote(str(path))} "$HOME; echo"')
  argument, values = eval(path.read_text())
  assert argument == '$HOME; echo'
  assert values == [
    ('CIFAR10_ACCURACY', '0.75'),
    ('CIFAR10_CHECKPOINT', 'a job/model.ckpt-40'),
    ('CIFAR10_EXAMPLES', '64'),
    ('CIFAR10_JOB_DIR', 'a job'),
    ('CIFAR10_LOSS', '1.5'),
    ('CIFAR10_STEP', '40'),
    ('CIFAR10_SUBSET', 'validation'),
  ]
  assert caplog.records == []


@pytest.mark.parametrize(
  ('command', 'said'),
  [
    ('false', 'ended with code 1'),
    ('/no/such/command x', 'cannot be run (No such file or directory)'),
    ('sleep 30', 'did not end in 0.2 s, and was killed'),
  ],
)
def test_its_failure_is_one_line(monkeypatch, caplog, command, said):
  if command.startswith('sleep'):
    monkeypatch.setattr(user_command, '_SECONDS', 0.2)
  caplog.set_level(logging.INFO, logger='cifar10')
  hear(command)
  assert [record.getMessage() for record in caplog.records] == [f'--on-evaluation {command} {said}']


def test_a_signal_ends_the_command_after_an_evaluation(caplog):
  caplog.set_level(logging.INFO, logger='cifar10')
  run = make_run(on_evaluation='sleep 30')
  threading.Timer(0.3, lambda: setattr(run.monitor, 'stopping', True)).start()
  made = Evaluation(40, 'validation', 'a job/model.ckpt-40', RESULT, [[64]], True)
  start = time.monotonic()
  user_command.make(run).on_evaluate_end(made)
  assert time.monotonic() - start < 10
  [said] = [record.getMessage() for record in caplog.records]
  assert said == (
    '--on-evaluation sleep 30 did not end in 1 s once the run was to end, and was killed'
  )


def test_after_a_signal_the_command_at_the_end_runs_but_not_for_long(tmp_path, monkeypatch, caplog):
  caplog.set_level(logging.INFO, logger='cifar10')
  path = tmp_path / 'made'
  user_command.make(make_run(stopping=True, on_end=f'touch {path}')).on_train_end('SIGTERM', '', 7)
  assert path.exists()
  assert caplog.records == []
  monkeypatch.setitem(user_command._LEFT, '--on-end', 0.2)
  user_command.make(make_run(stopping=True, on_end='sleep 30')).on_train_end('SIGTERM', '', 7)
  [said] = [record.getMessage() for record in caplog.records]
  assert said == '--on-end sleep 30 did not end in 0.2 s once the run was to end, and was killed'


@pytest.mark.parametrize('command', ['', '  ', 'echo "open'])
def test_what_is_no_command_is_refused(command):
  with pytest.raises(InputError, match='must be a command, its quotes closed'):
    RunOptions(job_dir='j', on_evaluation=command)


def test_the_end_of_training_starts_a_command_of_the_chief(tmp_path):
  """Nothing after an evaluation, and nothing in a worker."""
  path = tmp_path / 'reason'
  program = "import os, sys; open(sys.argv[1], 'a').write(os.environ['CIFAR10_REASON'] + ' '"
  program += " + os.environ['CIFAR10_MESSAGE'] + ' ' + os.environ['CIFAR10_STEP'])"
  command = f'{shlex.quote(sys.executable)} -c "{program}" {shlex.quote(str(path))}'
  for is_chief in (True, False):
    callback = user_command.make(make_run(is_chief, on_end=command))
    callback.on_evaluate_end(Evaluation(40, 'validation', 'c', RESULT, [[64]], True))
    callback.on_train_end('error', 'InputError: the loss became NaN', 7)
  assert path.read_text() == 'error InputError: the loss became NaN 7'
