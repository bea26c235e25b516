"""The command that makes the records: run as users run it."""

import functools
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from unittest import mock

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded, until

import generate_cifar10_tfrecords
from cifar10.core import limits, lock
from cifar10.data import foreign_records, info, manifest
from cifar10.data.build import archive, synthetic

SCRIPT = f'{checkout.ROOT}/generate_cifar10_tfrecords.py'
FILES = {'cifar10.json', 'train.tfrecords', 'validation.tfrecords', 'eval.tfrecords'}


def generate(*flags):
  """The command in a process of its own."""
  return checkout.python(SCRIPT, *flags)


@pytest.fixture
def generate_here(run_here):
  """The same in this process, where TensorFlow is loaded already."""
  return functools.partial(run_here, command=generate_cifar10_tfrecords)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp('made')
  result = generate('--data-dir', folder, '--synthetic', 20)
  succeeded(result)
  return folder, result


def times(folder):
  return {name: os.stat(folder / name).st_mtime_ns for name in FILES}


def test_makes_all_files_and_counts_them(made):
  folder, result = made
  assert set(os.listdir(folder)) > FILES
  line = json.loads(result.stdout)
  assert line['examples'] == {'train': 80, 'validation': 20, 'eval': 20}
  for split, count in line['examples'].items():
    frames = foreign_records.frames(manifest.record_path(str(folder), split))
    assert sum(1 for _ in frames) == count


def test_a_second_run_does_nothing(generate_here, made):
  folder, first = made
  before = times(folder)
  result = generate_here('--data-dir', folder, '--synthetic', 20)
  assert result.stdout == first.stdout
  assert 'nothing to do' in result.stderr
  assert times(folder) == before


def test_a_damaged_file_is_made_again(generate_here, made):
  folder = made[0]
  path = folder / 'eval.tfrecords'
  good, before = path.read_bytes(), times(folder)
  path.write_bytes(good[:-1] + b'x')
  result = generate_here('--data-dir', folder, '--synthetic', 20)
  assert result.returncode == 0
  assert 'eval.tfrecords is damaged' in result.stderr
  assert path.read_bytes() == good
  assert times(folder)['train.tfrecords'] == before['train.tfrecords']


@pytest.mark.parametrize('flags', [['--synthetic', 30], ['--synthetic', 20, '--seed', 1], []])
def test_never_replaces_other_records_unasked(generate_here, made, flags):
  folder = made[0]
  before = times(folder)
  assert 'holds other records' in refused(generate_here('--data-dir', folder, *flags))
  assert times(folder) == before


def test_force_replaces(generate_here, tmp_path):
  for size, count in [(20, 80), (30, 120)]:
    result = generate_here('--data-dir', tmp_path, '--synthetic', size, '--force')
    assert json.loads(result.stdout)['examples']['train'] == count


def test_old_records_without_a_manifest_are_left_alone(generate_here, tmp_path):
  for split in manifest.SPLITS:
    (tmp_path / f'{split}.tfrecords').write_bytes(b'old')
  assert 'without a manifest' in refused(generate_here('--data-dir', tmp_path, '--synthetic', 20))
  os.remove(tmp_path / 'eval.tfrecords')  # The others are somebody's, too.
  assert 'without a manifest' in refused(generate_here('--data-dir', tmp_path, '--synthetic', 20))
  for split in ('train', 'validation'):
    assert (tmp_path / f'{split}.tfrecords').read_bytes() == b'old'


def test_bad_input(generate_here, tmp_path):
  file, photos = tmp_path / 'file', tmp_path / 'photos'
  file.touch()
  photos.mkdir()
  for flags, message in [
    (['--synthetic', 0], '--synthetic is 0'),
    (['--synthetic', 'x'], "invalid int value: 'x'"),
    (['--seed', -1], '--seed is -1'),
    (['--seed', 0], '--seed belongs to --synthetic N and --images FOLDER'),
    (['--archive', file, '--seed', 1], '--seed belongs to --synthetic N and --images FOLDER'),
    (['--url', ''], '--url is empty; name an address'),
    (['--archive', tmp_path / 'none'], 'does not exist'),
    (['--archive', ''], "--archive '' does not exist"),
    (['--archive', file, '--synthetic', 5], 'two sources'),
    (['--data-dir', file, '--synthetic', 5], 'cannot be written'),
    (['--dataset', 'imagenet'], "invalid choice: 'imagenet'"),
    (['--labels', 'coarse'], '--labels coarse belongs to --dataset cifar100'),
    (['--split', '0.8,0.1,0.1'], '--split belongs to --images FOLDER'),
    (['--name', 'x'], '--name belongs to --images FOLDER'),
    (['--images', photos, '--split', '0.8,0.2'], "'0.8,0.2' is not three numbers above 0"),
    (['--images', photos, '--split', '0.9,0.1,0'], 'is not three numbers above 0'),
    (['--images', photos, '--split', 'nan,0.1,0.1'], 'is not three numbers above 0'),
    (['--images', photos, '--split', '0.8,0.1,0.2'], 'sums to 1.1, not 1'),
    (['--images', photos, '--split', 'a,b,c'], 'is not three numbers above 0'),
    (['--images', photos, '--dataset', 'cifar10'], '--dataset and --images name two sources'),
    (['--images', photos, '--synthetic', 5], '--synthetic and --images name two sources'),
    (['--images', photos, '--archive', file], '--archive and --images name two sources'),
    (['--images', photos, '--data-dir', photos / 'data'], 'lies in --images'),
    (['--images', photos], 'has 0 sub-folders'),
    (['--images', file], 'cannot be listed (Not a directory)'),
    (['--images', ''], 'cannot be listed'),
  ]:
    assert message in refused(generate_here('--data-dir', tmp_path / 'data', *flags))
  assert not FILES & {name for _, _, names in os.walk(tmp_path) for name in names}
  assert not os.path.exists(photos / 'data')


def test_bad_sources(generate_here, tmp_path):
  file = tmp_path / 'file'
  file.touch()
  for flags, message in [
    (['--archive', file], 'cannot be read'),
    (['--archive', file, '--dataset', 'cifar100'], 'cannot be read'),
    (['--url', 'nonsense'], 'could not be downloaded'),
    (['--url', 'nonsense', '--archive', file], '--archive and --url name two sources'),
    (['--url', 'nonsense', '--synthetic', 1], '--synthetic and --url name two sources'),
  ]:
    assert message in refused(generate_here('--data-dir', tmp_path / 'data', *flags))
  assert not FILES & set(os.listdir(tmp_path / 'data'))


def test_an_archive_that_is_there_is_read_in_place_of_an_address(generate_here, tmp_path):
  archive = tmp_path / 'cifar-10-python.tar.gz'
  archive.touch()
  result = generate_here('--data-dir', tmp_path, '--url', 'http://nowhere/a.tar.gz')
  assert f'{archive} cannot be read' in refused(result)
  assert (
    f'{archive} is there: it is read, and --url http://nowhere/a.tar.gz is not' in result.stderr
  )


def test_a_refusal_is_one_line_of_the_process_and_its_code_2(tmp_path):
  (tmp_path / 'photos').mkdir()
  flags = ['--data-dir', tmp_path / 'data', '--images', tmp_path / 'photos']
  assert 'has 0 sub-folders' in refused(generate(*flags))


def test_a_synthetic_archive_is_not_taken_for_the_published_one(generate_here, made, tmp_path):
  archive = made[0] / 'cifar-10-synthetic.tar.gz'
  error = refused(generate_here('--data-dir', tmp_path, '--archive', archive))
  assert 'damaged or not CIFAR-10' in error
  assert not FILES & set(os.listdir(tmp_path))


def test_force_replaces_a_damaged_manifest_as_its_error_says(generate_here, tmp_path):
  (tmp_path / 'cifar10.json').write_text('{')
  flags = ['--data-dir', tmp_path, '--synthetic', 20]
  assert '--force' in refused(generate_here(*flags))
  succeeded(generate_here(*flags, '--force'))


def test_what_another_process_has_made_meanwhile_is_not_replaced(
  generate_here, tmp_path, monkeypatch
):
  """Between the look at what is missing and the lock: of another source."""
  locked = lock.locked

  def later(*arguments, **named):
    monkeypatch.undo()
    assert generate('--data-dir', tmp_path, '--synthetic', 30).returncode == 0
    return locked(*arguments, **named)

  monkeypatch.setattr(lock, 'locked', later)
  said = refused(generate_here('--data-dir', tmp_path, '--synthetic', 20))
  assert 'holds other records: images_per_batch is 30 there and 20 here' in said


def test_a_killed_conversion_leaves_no_half_file(generate_here, tmp_path):
  with subprocess.Popen(
    [sys.executable, SCRIPT, '--data-dir', tmp_path, '--synthetic', '600'],
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
  result = generate_here('--data-dir', tmp_path, '--synthetic', 20)
  assert json.loads(result.stdout)['examples'] == {'train': 80, 'validation': 20, 'eval': 20}


def test_cifar_100(generate_here, tmp_path):
  flags = ['--data-dir', tmp_path, '--dataset', 'cifar100', '--synthetic', 24]
  result = generate_here(*flags)
  line = json.loads(result.stdout)
  assert line['name'] == 'cifar100'
  assert line['num_classes'] == 100
  assert line['examples'] == {'train': 96, 'validation': 24, 'eval': 24}
  described = info.describe(str(tmp_path))
  assert described.classes[42] == 'texture_42'
  assert described.means != info.CIFAR10.means
  before = times(tmp_path)
  assert 'nothing to do' in generate_here(*flags).stderr
  for other, difference in [
    (['--dataset', 'cifar10', '--synthetic', 24], 'name is cifar100 there and cifar10 here'),
    (['--dataset', 'cifar100'], 'source is synthetic there and published here'),
    ([*flags, '--labels', 'coarse'], 'name is cifar100 there and cifar100-coarse here'),
  ]:
    error = refused(generate_here('--data-dir', tmp_path, *other))
    assert 'holds other records' in error
    assert difference in error
  assert times(tmp_path) == before
  line = json.loads(generate_here(*flags, '--labels', 'coarse', '--force').stdout)
  assert (line['name'], line['num_classes']) == ('cifar100-coarse', 20)


def test_an_archive_of_cifar_100_is_verified(generate_here, tmp_path):
  made = tmp_path / 'made'
  generate_here('--data-dir', made, '--dataset', 'cifar100', '--synthetic', 2)
  synthetic = made / 'cifar-100-synthetic.tar.gz'
  flags = ['--data-dir', tmp_path / 'data', '--archive', synthetic]
  error = refused(generate_here(*flags, '--dataset', 'cifar100'))
  assert 'meta in' in error
  assert 'not 7973b15100ade9c7d40fb424638fde48: it is damaged or not CIFAR-100' in error
  assert 'lacks data_batch_1' in refused(generate_here(*flags))
  digests = {name: archive.CIFAR100.digest(content) for name, content in members(synthetic)}
  with mock.patch.dict(archive.CIFAR100.digests, digests):
    line = json.loads(generate_here(*flags, '--dataset', 'cifar100').stdout)
  assert line['source'] == 'published'
  assert line['examples'] == {'train': 8, 'validation': 2, 'eval': 2}
  assert '--archive' in manifest.read_manifest(str(tmp_path / 'data'))['flags']


def members(path):
  with tarfile.open(path) as tar:
    for member in tar:
      yield os.path.basename(member.name), tar.extractfile(member).read()


@pytest.fixture
def photos(tmp_path):
  """Two classes of ten PNG images."""
  for name in ('big cat', 'dog'):
    (tmp_path / 'photos' / name).mkdir(parents=True)
    for number in range(10):
      png = tf.io.encode_png(np.full([5, 4, 3], 10 * number, np.uint8))
      (tmp_path / 'photos' / name / f'{number}.png').write_bytes(png.numpy())
  return tmp_path / 'photos'


def test_own_images(generate_here, photos, tmp_path):
  (photos / 'dog' / 'bad.png').write_bytes(b'x')
  flags = ['--data-dir', tmp_path / 'data', '--images', photos, '--split', '0.5,0.3,0.2']
  result = generate_here(*flags)
  line = json.loads(result.stdout)
  assert line['name'] == 'photos'
  assert line['num_classes'] == 2
  assert line['examples'] == {'train': 10, 'validation': 6, 'eval': 4}
  assert line['unreadable'] == 1
  assert f'left out: image {photos}/dog/bad.png cannot be read as PNG or JPEG' in result.stderr
  assert info.describe(str(tmp_path / 'data')).classes == ('big cat', 'dog')
  before = times(tmp_path / 'data')
  again = generate_here(*flags)
  assert again.stdout == result.stdout
  assert 'nothing to do' in again.stderr
  for other, difference in [
    (['--seed', 1], 'seed is 0 there and 1 here'),
    (['--split', '0.8,0.1,0.1'], 'split is [0.5, 0.3, 0.2] there and [0.8, 0.1, 0.1] here'),
    (['--name', 'pets'], 'name is photos there and pets here'),
  ]:
    assert difference in refused(generate_here(*flags, *other))
  (photos / 'dog' / 'bad.png').unlink()
  assert 'files is 21 there and 20 here' in refused(generate_here(*flags))
  assert 'name is photos there and cifar10' in refused(
    generate_here('--data-dir', tmp_path / 'data')
  )
  assert times(tmp_path / 'data') == before


def test_a_damaged_file_of_own_images_is_made_again(generate_here, photos, tmp_path):
  flags = ['--data-dir', tmp_path / 'data', '--images', photos]
  generate_here(*flags)
  path = tmp_path / 'data' / 'train.tfrecords'
  good = path.read_bytes()
  path.unlink()
  result = generate_here(*flags)
  assert 'train.tfrecords is missing: making it again' in result.stderr
  assert path.read_bytes() == good


@pytest.mark.parametrize(
  ('flags', 'largest'),
  [
    # A member has 2**28 bytes at most, 3,150 of an image; CIFAR-100's train has five times as many.
    (['--synthetic', 10**8], 2**28 // 3150),
    (['--synthetic', 10**30], 2**28 // 3150),
    (['--synthetic', 50_000, '--dataset', 'cifar100'], 2**28 // 5 // 3150),
  ],
)
def test_more_images_than_an_archive_holds_are_refused_at_once(
  generate_here, tmp_path, monkeypatch, flags, largest
):
  monkeypatch.setattr(limits, 'memory', lambda: 10**12)
  monkeypatch.setattr(synthetic, 'free_disk', lambda folder: 10**13)
  said = refused(generate_here('--data-dir', tmp_path / 'data', *flags))
  assert f"--synthetic is {flags[1]}: it must be {largest} or less, as an archive's" in said
  assert not (tmp_path / 'data').exists()


def test_more_images_than_there_is_room_for_are_refused_at_once(
  generate_here, tmp_path, monkeypatch
):
  """130 kB of memory and 38 kB of disk an image: 1.3 GB and 0.38 GB are 10,000 images."""
  monkeypatch.setattr(limits, 'memory', lambda: 1_300_000_000)
  monkeypatch.setattr(synthetic, 'free_disk', lambda folder: 10**12)
  flags = ['--data-dir', tmp_path / 'data', '--synthetic', 10_001]
  assert 'it must be 10000 or less, as 1.3 GB of memory are there' in refused(generate_here(*flags))
  monkeypatch.setattr(limits, 'memory', lambda: 10**12)
  monkeypatch.setattr(synthetic, 'free_disk', lambda folder: 380_000_000)
  assert 'it must be 10000 or less, as 0.38 GB of disk are free' in refused(generate_here(*flags))
  assert not (tmp_path / 'data').exists()


def test_a_data_dir_that_another_process_fills_is_refused(generate_here, tmp_path):
  """While it generates an archive that takes it long; what it had begun goes when it is killed."""
  flags = ['--data-dir', tmp_path, '--synthetic']
  with subprocess.Popen([sys.executable, SCRIPT, *map(str, flags), '3000']) as process:
    until(lambda: lock.holder(f'{tmp_path}/cifar10.lock'), 60, process)
    result = generate_here(*flags, 5)
    refused(result)
    assert f'--data-dir {tmp_path}: process {process.pid} on ' in result.stderr
    assert 'makes its files; wait for its end, or name another' in result.stderr
    process.kill()
  assert generate_here(*flags, 5).returncode == 0
  others = {'cifar-10-synthetic.tar.gz', 'cifar10.lock'}
  assert {path.name for path in tmp_path.iterdir()} == FILES | others


def test_what_is_there_is_verified_also_where_no_more_has_room(generate_here, made, monkeypatch):
  monkeypatch.setattr(synthetic, 'free_disk', lambda folder: 0)
  folder, _ = made
  result = generate_here('--data-dir', folder, '--synthetic', 20)
  assert result.returncode == 0, result.stderr
