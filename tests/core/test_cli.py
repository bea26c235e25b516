"""What all commands share: --version, signals, exit codes, and a start without TensorFlow."""

import errno
import os
import re
import signal
import subprocess
import sys
import types

import checkout
import pytest
import tensorflow as tf

import cifar10
from cifar10 import local_cluster
from cifar10.core import cli
from cifar10.core.errors import TaskLostError, Terminated
from cifar10.core.logs import format_duration


@pytest.mark.parametrize(
  ('module', 'words', 'said'),
  [
    ('cifar10_main', '--help', 'usage: cifar10-some'),
    ('cifar10_main', '--job-dir j --data-dir d --recipe fast94 --use-ema', 'error: --use-ema: '),
    ('cifar10.report', '--version', f'cifar10-some {cifar10.__version__} (TensorFlow '),
  ],
)
def test_does_not_wait_for_tensorflow(module, words, said):
  code = f"""
import sys
from {module} import run
sys.argv = 'cifar10-some {words}'.split()
try:
  run()
finally:
  if {{'tensorflow.python', 'model_base'}} & set(sys.modules):
    sys.exit('TensorFlow is loaded')
"""
  result = checkout.python('-c', code)
  assert 'TensorFlow is loaded' not in result.stderr
  assert (result.stdout + result.stderr).startswith(said)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_in_good_order(number):
  """It is no fault of users' code, and a second one waits.

  The process is a container's first, from which Linux keeps what it has no handler for, so that
  `docker stop` would have to kill it.
  """
  code = f"""if True:
    import os, signal, sys, time
    os.getpid = lambda: 1
    signal.signal({int(number)}, signal.SIG_DFL)  # Also where `nohup` started these tests.
    from cifar10.core import cli, errors, user_code
    def main():
      try:
        with user_code.others_code(errors.InputError, None):
          print('up', file=sys.stderr)
          time.sleep(60)
      finally:
        signal.raise_signal({int(number)})
        print('removed', file=sys.stderr)
    cli.run_process(main)
  """
  environment = {**os.environ, 'PYTHONPATH': checkout.ROOT}
  command = [sys.executable, '-c', code]
  with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
    assert process.stderr.readline() == 'up\n'
    process.send_signal(number)
    assert process.stderr.read() == f'removed\nended by {number.name}\n'
  assert process.returncode == 128 + number


def test_the_citation_has_the_programs_version():
  cited = re.search(r'^version: (.*)$', checkout.read('CITATION.cff'), re.M)
  assert cited[1] == cifar10.__version__


def test_shtab_completes_by_the_parser():
  command = ['--shell=bash', '--prog=cifar10-train', 'cifar10.options.flags.full_parser']
  said = checkout.python('-m', 'shtab', *command, must_succeed=True).stdout
  assert '--learning-rate' in said
  assert 'he2015' in said


def test_a_gpu_without_room_is_one_line(capsys):
  """What TensorFlow says of it has a hundred lines."""
  said = 'Graph execution error:\n\n2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED: '
  said += 'OOM when allocating tensor with shape[9]\n'

  def main():
    raise tf.errors.ResourceExhaustedError(None, None, said)

  with pytest.raises(SystemExit) as end:
    cli.run_command(main)
  assert end.value.code == 1
  [line] = capsys.readouterr().err.splitlines()
  assert line.startswith('error: not enough memory (OOM when allocating tensor with shape[9]); ')


@pytest.mark.parametrize(
  ('error', 'code'),
  [(KeyboardInterrupt(15), 143), (Terminated('SIGHUP'), 129), (TaskLostError('x'), 138)],
)
def test_a_code_counts_where_no_line_can_be_written(error, code, monkeypatch):
  def full(text):
    raise OSError(errno.ENOSPC, 'No space left on device')

  def main():
    local_cluster.show('chief 0', 'a line of its log')  # A task goes on without it.
    raise error

  monkeypatch.setattr(sys, 'stderr', types.SimpleNamespace(write=full))
  with pytest.raises(SystemExit) as end:
    cli.run_command(main)
  assert end.value.code == code


def test_durations():
  shown = {0: '0 s', 59.4: '59 s', 59.7: '1 min', 90: '2 min', 5400: '1 h 30 min'}
  assert {seconds: format_duration(seconds) for seconds in shown} == shown
