"""The command that makes the records: run as users run it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cifar10 import records

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, 'generate_cifar10_tfrecords.py')
FILES = {'cifar10.json', 'train.tfrecords', 'validation.tfrecords', 'eval.tfrecords'}


def generate(*flags, timeout=60):
  return subprocess.run(
    [sys.executable, SCRIPT, *map(str, flags)],
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )


def refused(result):
  """The one line of a refusal."""
  assert result.returncode == 2, result.stderr
  assert result.stdout == ''
  lines = [line for line in result.stderr.splitlines() if 'error: ' in line]
  assert len(lines) == 1
  assert 'Traceback' not in result.stderr
  return lines[0]


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp('made')
  result = generate('--data-dir', folder, '--synthetic', 20)
  assert result.returncode == 0, result.stderr
  return folder, result


def times(folder):
  return {name: os.stat(folder / name).st_mtime_ns for name in FILES}


def test_makes_all_files_and_counts_them(made):
  folder, result = made
  assert set(os.listdir(folder)) > FILES
  line = json.loads(result.stdout)
  assert line['examples'] == {'train': 80, 'validation': 20, 'eval': 20}
  for subset, count in line['examples'].items():
    assert records.count_records(records.record_path(str(folder), subset)) == count


def test_a_second_run_does_nothing(made):
  folder, first = made
  before = times(folder)
  result = generate('--data-dir', folder, '--synthetic', 20)
  assert result.stdout == first.stdout
  assert 'nothing to do' in result.stderr
  assert times(folder) == before


def test_a_damaged_file_is_made_again(made):
  folder = made[0]
  path = folder / 'eval.tfrecords'
  good, before = path.read_bytes(), times(folder)
  path.write_bytes(good[:-1] + b'x')
  result = generate('--data-dir', folder, '--synthetic', 20)
  assert result.returncode == 0
  assert 'eval.tfrecords is damaged' in result.stderr
  assert path.read_bytes() == good
  assert times(folder)['train.tfrecords'] == before['train.tfrecords']


@pytest.mark.parametrize('flags', [['--synthetic', 30], ['--synthetic', 20, '--seed', 1], []])
def test_never_replaces_other_records_unasked(made, flags):
  folder = made[0]
  before = times(folder)
  assert 'holds other records' in refused(generate('--data-dir', folder, *flags))
  assert times(folder) == before


def test_force_replaces(tmp_path):
  for size, count in [(20, 80), (30, 120)]:
    result = generate('--data-dir', tmp_path, '--synthetic', size, '--force')
    assert json.loads(result.stdout)['examples']['train'] == count


def test_old_records_without_a_manifest_are_left_alone(tmp_path):
  for subset in records.SUBSETS:
    (tmp_path / f'{subset}.tfrecords').write_bytes(b'old')
  assert 'without a manifest' in refused(generate('--data-dir', tmp_path, '--synthetic', 20))
  assert {(tmp_path / f'{subset}.tfrecords').read_bytes() for subset in records.SUBSETS} == {b'old'}


def test_bad_input(tmp_path):
  file = tmp_path / 'file'
  file.touch()
  for flags, message in [
    (['--synthetic', 0], '--synthetic is 0'),
    (['--synthetic', 'x'], "invalid int value: 'x'"),
    (['--archive', tmp_path / 'none'], 'does not exist'),
    (['--archive', file], 'cannot be read'),
    (['--archive', file, '--synthetic', 5], 'two sources'),
    (['--data-dir', file, '--synthetic', 5], 'cannot be used'),
    (['--data-dir', tmp_path, '--url', 'nonsense'], 'could not be downloaded'),
  ]:
    assert message in refused(generate('--data-dir', tmp_path / 'data', *flags))
  assert not FILES & {name for _, _, names in os.walk(tmp_path) for name in names}


def test_a_synthetic_archive_is_not_taken_for_the_published_one(made, tmp_path):
  archive = made[0] / 'cifar-10-synthetic.tar.gz'
  error = refused(generate('--data-dir', tmp_path, '--archive', archive))
  assert 'damaged or not CIFAR-10' in error
  assert not FILES & set(os.listdir(tmp_path))


def test_a_killed_conversion_leaves_no_half_file(tmp_path):
  with subprocess.Popen(
    [sys.executable, SCRIPT, '--data-dir', tmp_path, '--synthetic', '1500'],
    stderr=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
  ) as process:
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob('train.tfrecords.*')) and process.poll() is None:
      assert time.monotonic() < deadline
      time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
  assert process.returncode == -signal.SIGKILL
  assert not FILES & set(os.listdir(tmp_path))
  result = generate('--data-dir', tmp_path, '--synthetic', 20)
  assert json.loads(result.stdout)['examples'] == {'train': 80, 'validation': 20, 'eval': 20}


@pytest.mark.skipif('CIFAR10_ARCHIVE' not in os.environ, reason='CIFAR10_ARCHIVE is not set')
def test_real_cifar_10(tmp_path):
  result = generate('--data-dir', tmp_path, '--archive', os.environ['CIFAR10_ARCHIVE'])
  line = json.loads(result.stdout)
  assert line['source'] == 'published'
  assert line['examples'] == {'train': 40_000, 'validation': 10_000, 'eval': 10_000}
