"""What all commands share: their names in texts, --version, signals, results, exit codes."""

import importlib
import importlib.metadata
import platform
import re
import signal
import sys

import checkout
import pytest
import tensorflow as tf

import cifar10
import cifar10_main
import generate_cifar10_tfrecords
from cifar10 import checkpoint, control, local_cluster, report
from cifar10.core import cli, errors, user_code
from cifar10.core.logs import format_duration

# A command that is added stands here, and is tested as the others are.
COMMANDS = {
  'cifar10-generate': generate_cifar10_tfrecords,
  'cifar10-train': cifar10_main,
  'cifar10-cluster': local_cluster,
  'cifar10-control': control,
  'cifar10-report': report,
  'cifar10-checkpoint': checkpoint,
}


def test_version_is_said_in_one_line(run_here):
  result = run_here('--version', command=report)
  assert result.returncode == 0
  tensorflow = importlib.metadata.version('tensorflow')
  versions = f'(TensorFlow {tensorflow}, Python {platform.python_version()})'
  assert result.stdout.endswith(f' {cifar10.__version__} {versions}\n')


@pytest.mark.parametrize(
  ('module', 'flag', 'said'),
  [
    ('cifar10_main', '--help', '--use-distortion-for-training'),
    ('cifar10.report', '--help', '--out'),
  ],
)
def test_does_not_wait_for_tensorflow(module, flag, said):
  code = f"""
import sys
from {module} import run
sys.argv = ['cifar10-some', '{flag}']
try:
  run()
finally:
  assert 'tensorflow.python' not in sys.modules  # What its `__init__` imports first.
"""
  result = checkout.python('-c', code, must_succeed=True)
  assert 'cifar10-some' in result.stdout
  assert said in result.stdout


def test_sigterm_is_no_fault_of_the_users_code_and_a_second_one_waits(capfd):
  before = signal.getsignal(signal.SIGTERM)
  with pytest.raises(SystemExit) as end, cli.ended_by_signals():
    try:
      with user_code.others_code(errors.InputError, None):
        signal.raise_signal(signal.SIGTERM)
    finally:
      signal.raise_signal(signal.SIGTERM)
      print('removed')
  assert end.value.code == 143
  assert capfd.readouterr() == ('removed\n', 'ended by SIGTERM\n')
  assert signal.getsignal(signal.SIGTERM) == before


def test_the_citation_has_the_programs_version():
  cited = re.search(r'^version: (.*)$', checkout.read('CITATION.cff'), re.M)
  assert cited[1] == cifar10.__version__


def test_every_script_of_the_package_is_named_as_such():
  project = checkout.read('pyproject.toml')
  table = re.search(r'^\[project.scripts\]\n(.*?)\n\n', project, re.M | re.S)[1]
  scripts = dict(re.findall(r'^(\S+) = "(.*)"$', table, re.M))
  assert set(scripts) == set(cli.SCRIPTS.values()) == set(COMMANDS)
  for target in scripts.values():
    module, _, function = target.partition(':')
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize(
  ('text', 'shown'),
  [
    ('run: python generate_cifar10_tfrecords.py --x', 'run: cifar10-generate --x'),
    ("which are cifar10_main.py's", "which are cifar10-train's"),
    ('  python -m cifar10.local_cluster --ps 1', '  cifar10-cluster --ps 1'),
    ('/my/cifar10_main.py is no folder', '/my/cifar10_main.py is no folder'),
  ],
)
def test_texts_name_what_was_typed(monkeypatch, text, shown):
  """Of the checkout's files, and of the scripts where one of them was started."""
  monkeypatch.setattr(sys, 'argv', ['/my/cifar10_main.py'])
  assert cli.as_typed(text) == text
  monkeypatch.setattr(sys, 'argv', ['/usr/local/bin/cifar10-cluster'])
  assert cli.as_typed(text) == shown


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
  assert line.startswith(
    'error: not enough memory (OOM when allocating tensor with shape[9]); lower'
  )


def test_durations():
  shown = {0: '0 s', 59: '59 s', 60: '1 min', 90: '2 min', 3600: '1 h 0 min', 5400: '1 h 30 min'}
  assert {seconds: format_duration(seconds) for seconds in shown} == shown
