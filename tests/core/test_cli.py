"""What all commands share: their names in texts, --version, --print-completion."""

import importlib
import importlib.metadata
import platform
import re
import shlex
import signal
import sys

import checkout
import pytest
import tensorflow as tf
from outcome import refused

import cifar10
import cifar10_main
import generate_cifar10_tfrecords
from cifar10 import checkpoint, control, local_cluster, report
from cifar10.core import cli, errors, user_code

# A command that is added stands here, and is tested as the others are.
COMMANDS = {
  'cifar10-generate': generate_cifar10_tfrecords,
  'cifar10-train': cifar10_main,
  'cifar10-cluster': local_cluster,
  'cifar10-control': control,
  'cifar10-report': report,
  'cifar10-checkpoint': checkpoint,
}


@pytest.mark.parametrize('name', COMMANDS)
def test_version_is_said_in_one_line(run_here, name):
  result = run_here('--version', command=COMMANDS[name])
  assert result.returncode == 0
  tensorflow = importlib.metadata.version('tensorflow')
  versions = f'(TensorFlow {tensorflow}, Python {platform.python_version()})'
  assert result.stdout.endswith(f' {cifar10.__version__} {versions}\n')


@pytest.mark.parametrize(
  ('command', 'flag', 'said'),
  [
    ('train', '--version', '(TensorFlow '),
    ('train', '--help', '--use-distortion-for-training'),
    ('report', '--help', '--out'),
  ],
)
def test_does_not_wait_for_tensorflow(command, flag, said):
  code = f"""
import sys
from cifar10 import commands
sys.argv = ['cifar10-{command}', '{flag}']
try:
  commands.{command}()
finally:
  assert 'tensorflow.python' not in sys.modules  # What its `__init__` imports first.
"""
  result = checkout.python('-c', code, must_succeed=True)
  assert f'cifar10-{command}' in result.stdout
  assert said in result.stdout


def test_sigterm_is_no_fault_of_the_users_code_and_a_second_one_waits(capfd):
  before = signal.getsignal(signal.SIGTERM)
  with pytest.raises(SystemExit) as end, cli.ended_by_signals():
    try:
      with user_code.others_code(errors.InputError, None):
        signal.raise_signal(signal.SIGTERM)
    finally:
      signal.raise_signal(signal.SIGTERM)
      signal.raise_signal(signal.SIGHUP)
      print('removed')
  assert end.value.code == 143
  assert capfd.readouterr() == ('removed\n', 'ended by SIGTERM\n')
  assert signal.getsignal(signal.SIGTERM) == before
  with pytest.raises(KeyboardInterrupt), cli.ended_by_signals():
    raise KeyboardInterrupt


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
    ('python cifar10_main.py', 'cifar10-train'),
    ("which are cifar10_main.py's", "which are cifar10-train's"),
    ('  python -m cifar10.local_cluster --ps 1', '  cifar10-cluster --ps 1'),
    ('/my/cifar10_main.py is no folder', '/my/cifar10_main.py is no folder'),
    ('the record files', 'the record files'),
  ],
)
def test_texts_name_what_was_typed(monkeypatch, text, shown):
  """Of the checkout's files, and of the scripts where one of them was started."""
  monkeypatch.setattr(sys, 'argv', ['/my/cifar10_main.py'])
  assert cli.as_typed(text) == text
  monkeypatch.setattr(sys, 'argv', ['/usr/local/bin/cifar10-cluster'])
  assert cli.as_typed(text) == shown


def test_an_error_names_the_command_that_was_typed(monkeypatch, tmp_path, capsys):
  flags = ['--data-dir', str(tmp_path), '--job-dir', str(tmp_path / 'job')]
  monkeypatch.setattr(sys, 'argv', ['/usr/local/bin/cifar10-train', *flags])
  with pytest.raises(SystemExit) as end:
    errors.run_command(cifar10_main.main)
  assert end.value.code == 2
  assert (
    f'run: cifar10-generate --data-dir {shlex.quote(str(tmp_path))}\n' in capsys.readouterr().err
  )


def test_completion_is_of_the_scripts(run_here):
  assert 'not cifar10_main.py; run pip install .' in refused(run_here('--print-completion', 'bash'))


def test_completion_without_shtab(monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, 'shtab', None)  # As where it is not installed.
  monkeypatch.setattr(sys, 'argv', ['cifar10-train', '--print-completion', 'bash'])
  with pytest.raises(SystemExit) as end:
    errors.run_command(cifar10_main.main)
  assert end.value.code == 2
  error = capsys.readouterr().err
  assert error.startswith('error: --print-completion needs shtab')
  assert error.count('\n') == 1


def test_a_locale_that_tensorflow_does_not_know(monkeypatch, capsys):
  """Python would take one folder for 'J\xf6b', and TensorFlow, which knows UTF-8 alone, another."""
  monkeypatch.setattr(sys, 'getfilesystemencoding', lambda: 'iso8859-1')
  parser = cli.OneLineParser('program')
  parser.add_argument('job')
  monkeypatch.setenv('PWD', '/home')
  assert parser.parse_args(['job']).job == 'job'
  for folder, job, named in (('/home', 'J\xf6b', 'J\xf6b'), ('/h\xf6me', 'job', '/h\xf6me')):
    monkeypatch.setenv('PWD', folder)
    with pytest.raises(SystemExit) as end:
      parser.parse_args([job])
    assert end.value.code == 2
    expected = (
      f"error: '{named}': this locale's encoding, iso8859-1, is not UTF-8; set PYTHONUTF8=1"
    )
    assert capsys.readouterr().err.startswith(expected)


def test_a_gpu_without_room_is_one_line(capsys):
  """What TensorFlow says of it has a hundred lines."""
  said = 'Graph execution error:\n\n2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED: '
  said += 'OOM when allocating tensor with shape[9]\n'

  def main():
    raise tf.errors.ResourceExhaustedError(None, None, said)

  with pytest.raises(SystemExit) as end:
    errors.run_command(main)
  assert end.value.code == 1
  [line] = capsys.readouterr().err.splitlines()
  assert line.startswith(
    'error: not enough memory (OOM when allocating tensor with shape[9]); lower'
  )
