"""The command that makes the records: run as users run it, and called as the old program was."""

import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded, until
from PIL import Image

import generate_cifar10_tfrecords
from cifar10.core import lock
from cifar10.data import image_files, input_pipeline, manifest
from cifar10.data.build import archive

SCRIPT = f'{checkout.ROOT}/generate_cifar10_tfrecords.py'
FILES = {'cifar10.json', 'train.tfrecords', 'validation.tfrecords', 'eval.tfrecords'}


@pytest.fixture
def generate_here(run_here):
  """The command in this process, where TensorFlow is loaded already."""
  return functools.partial(run_here, command=generate_cifar10_tfrecords)


@pytest.fixture(scope='module')
def made(run_shared, tmp_path_factory):
  folder = tmp_path_factory.mktemp('made')
  flags = ['--data-dir', folder, '--synthetic', 20]
  return folder, run_shared(*flags, command=generate_cifar10_tfrecords)


def times(folder):
  return {name: os.stat(folder / name).st_mtime_ns for name in FILES}


def test_makes_all_files_and_counts_them_and_a_second_run_does_nothing(generate_here, made):
  folder, result = made
  before = times(folder)
  line = json.loads(result.stdout)
  assert line['examples'] == {'train': 80, 'validation': 20, 'eval': 20}
  for split, count in line['examples'].items():
    assert len(list(tf.data.TFRecordDataset(f'{folder}/{split}.tfrecords'))) == count
  again = generate_here('--data-dir', folder, '--synthetic', 20)
  assert again.stdout == result.stdout
  assert 'nothing to do' in again.stderr
  assert times(folder) == before


@pytest.fixture(params=['small', pytest.param('published', marks=pytest.mark.slow)])
def old_program_s(request, tmp_path, monkeypatch, made):
  """A data dir with an archive, also the real one if it is here; what the command makes of it."""
  (tmp_path / 'data').mkdir()
  path = tmp_path / 'data' / 'cifar-10-python.tar.gz'
  if request.param == 'published':
    if not (real := os.environ.get('CIFAR10_ARCHIVE')):
      pytest.skip('CIFAR10_ARCHIVE names no published archive')
    path.symlink_to(real)
  else:
    with tarfile.open(path, 'w:gz') as tar:
      tar.add(made[0] / 'cifar-10-synthetic', 'cifar-10-batches-py')
    for name in archive.CIFAR10.digests:
      content = (made[0] / 'cifar-10-synthetic' / name).read_bytes()
      monkeypatch.setitem(archive.CIFAR10.digests, name, hashlib.sha256(content).hexdigest())
  return tmp_path / 'data'


def test_the_old_program_s_calls_make_the_command_s_files(generate_here, old_program_s, tmp_path):
  data_dir = str(old_program_s)
  generate_cifar10_tfrecords.download_and_extract(data_dir)
  input_dir = os.path.join(data_dir, 'cifar-10-batches-py')
  for mode, names in {
    'train': [f'data_batch_{number}' for number in range(1, 5)],
    'validation': ['data_batch_5'],
    'eval': ['test_batch'],
  }.items():
    input_files = [os.path.join(input_dir, name) for name in names]
    output_file = os.path.join(data_dir, mode + '.tfrecords')
    generate_cifar10_tfrecords.convert_to_tfrecord(input_files, output_file)
  called = {path.name: path.read_bytes() for path in old_program_s.glob('*.tfrecords')}
  assert succeeded(generate_here('--data-dir', old_program_s, '--force'))['source'] == 'published'
  assert called == {path.name: path.read_bytes() for path in old_program_s.glob('*.tfrecords')}
  if os.path.islink(f'{data_dir}/cifar-10-python.tar.gz'):  # The published one.
    digests = {split: digest[:16] for split, digest in manifest.digests(data_dir).items()}
    assert digests == {  # As every version of this program has made them.
      'train': '2515f5d0155e8b99',
      'validation': '5e24c895373ddf47',
      'eval': '52eb8012aed2656b',
    }
  generate_cifar10_tfrecords.main(data_dir)  # It finds them whole.


def test_replaces_other_records_or_a_damaged_manifest_only_by_force(generate_here, made, tmp_path):
  folder = made[0]
  before = times(folder)
  for flags in (['--synthetic', 30], ['--synthetic', 20, '--seed', 1], []):
    assert 'holds other records' in refused(generate_here('--data-dir', folder, *flags))
  assert times(folder) == before
  (tmp_path / 'train.tfrecords').write_bytes(b'old')
  assert 'holds other records' in refused(generate_here('--data-dir', tmp_path, '--synthetic', 20))
  assert (tmp_path / 'train.tfrecords').read_bytes() == b'old'
  (tmp_path / 'cifar10.json').write_text('{')
  flags = ['--data-dir', tmp_path, '--synthetic']
  assert '--force' in refused(generate_here(*flags, 20))
  for size, count in [(20, 80), (30, 120)]:
    assert succeeded(generate_here(*flags, size, '--force'))['examples']['train'] == count


def test_mistakes_are_told_in_one_line(generate_here, tmp_path):
  file, photos = tmp_path / 'file', tmp_path / 'photos'
  file.touch()
  photos.mkdir()
  for flags, named in [
    (['--synthetic', 0], '--synthetic is 0'),
    (['--synthetic', 10**30], '--synthetic is 1000000'),
    (['--synthetic', 5, '--seed', -1], '--seed is -1'),
    (['--archive', file, '--seed', 1], '--seed has no use'),
    (['--url', 'nonsense'], 'could not be downloaded'),
    (['--data-dir', file, '--synthetic', 5], 'cannot be written'),
    (['--labels', 'coarse'], '--labels coarse belongs to --dataset cifar100'),
    (['--images', photos, '--split', '0.8,0.1,0.2'], '--split'),
    (['--images', photos, '--dataset', 'cifar10'], '--dataset has no use'),
    (['--images', photos, '--data-dir', photos / 'data'], 'lies in --images'),
    (['--images', photos], 'has classes []'),
  ]:
    assert named in refused(generate_here('--data-dir', tmp_path / 'data', *flags))
  assert not FILES & {name for _, _, names in os.walk(tmp_path) for name in names}
  assert not os.path.exists(photos / 'data')
  as_process = checkout.python(SCRIPT, '--data-dir', tmp_path / 'data', '--images', photos)
  assert 'has classes []' in refused(as_process, at_once=True)


@pytest.mark.slow
def test_two_at_a_time_are_refused_and_a_kill_leaves_no_half_file(generate_here, tmp_path):
  flags = ['--data-dir', tmp_path, '--synthetic']
  with subprocess.Popen([sys.executable, SCRIPT, *map(str, flags), '3000']) as process:
    until(lambda: lock.holder(f'{tmp_path}/cifar10.lock'), 60, process)
    said = refused(generate_here(*flags, 5))
    until(lambda: list(tmp_path.glob('train.tfrecords.*')), 120, process)
    assert f'--data-dir {tmp_path}: process {process.pid} on ' in said
    process.send_signal(signal.SIGKILL)
  assert process.returncode == -signal.SIGKILL
  assert not FILES & set(os.listdir(tmp_path))
  counts = succeeded(generate_here(*flags, 20))['examples']
  assert counts == {'train': 80, 'validation': 20, 'eval': 20}
  assert not list(tmp_path.glob('*.tmp'))


@pytest.fixture
def photos(tmp_path):
  """Two classes: image i of class c is grey 100 c + i, but for one of noise, of another size."""
  folder = tmp_path / 'photos'
  for label, name in enumerate(('<b>&', 'big cat')):
    (folder / name).mkdir(parents=True)
    for number in range(10):
      grey = Image.new('RGB', (40, 30), (100 * label + number,) * 3)
      grey.save(folder / name / f'{number}.png')
  noise = np.random.default_rng(0).integers(0, 256, [75, 50, 3])
  Image.fromarray(noise.astype(np.uint8)).save(folder / 'big cat' / '0.png')
  return folder


def read(data_dir, split):
  """A split's images, uint8 [n, 32, 32, 3], and labels."""
  return input_pipeline.Cifar10DataSet(str(data_dir), split).all_examples()


def test_own_images(generate_here, photos, tmp_path):
  (photos / 'big cat' / 'bad.png').write_bytes(b'x')
  flags = ['--data-dir', tmp_path / 'data', '--images', photos, '--split', '0.5,0.3,0.2']
  result = generate_here(*flags)
  line = json.loads(result.stdout)
  assert (line['name'], line['num_classes'], line['unreadable']) == ('photos', 2, 1)
  assert line['examples'] == {'train': 10, 'validation': 6, 'eval': 4}
  assert f'left out: image {photos}/big cat/bad.png cannot be read as PNG, ' in result.stderr
  assert manifest.describe(str(tmp_path / 'data')).classes == ('<b>&', 'big cat')
  kept = manifest.read_manifest(str(tmp_path / 'data'))['flags']
  assert kept == f'--images {photos} --split 0.5,0.3,0.2'
  noise = image_files.read_image(str(photos / 'big cat' / '0.png'))
  seen = []
  for split in manifest.SUBSETS:
    for image, label in zip(*read(tmp_path / 'data', split)):
      is_noise = np.array_equal(image, noise)  # As predictions see it.
      seen.append((label, 0 if is_noise else image[0, 0, 0] - 100 * label))
      assert is_noise or (image == image[0, 0, 0]).all()
  assert sorted(seen) == [(label, number) for label in range(2) for number in range(10)]
  before = times(tmp_path / 'data')
  assert generate_here(*flags).stdout == result.stdout
  for other, difference in [
    (['--split', '0.8,0.1,0.1'], 'split is [0.5, 0.3, 0.2] there and [0.8, 0.1, 0.1] here'),
    (['--name', 'pets'], 'name is photos there and pets here'),
  ]:
    assert difference in refused(generate_here(*flags, *other))
  (photos / 'big cat' / 'bad.png').unlink()
  assert 'files is 21 there and 20 here' in refused(generate_here(*flags))
  assert times(tmp_path / 'data') == before


def test_a_data_dir_of_format_1_is_kept_and_a_damaged_or_missing_file_made_again(
  generate_here, tmp_path
):
  flags = ['--data-dir', tmp_path, '--synthetic', 2]
  generate_here(*flags)
  assert manifest.describe(str(tmp_path)) == manifest.CIFAR10  # Published, not computed.
  content = manifest.read_manifest(str(tmp_path))
  format_1 = ('source', 'images_per_batch', 'seed', 'classes', 'subsets')
  manifest.write_manifest(str(tmp_path), {'format': 1, **{key: content[key] for key in format_1}})
  assert 'nothing to do' in generate_here(*flags).stderr
  path = tmp_path / 'eval.tfrecords'
  good = path.read_bytes()
  path.write_bytes(good[:-1] + b'x')
  for _ in range(2):
    assert f'missing or damaged: {path}; making all' in generate_here(*flags).stderr
    assert path.read_bytes() == good
    assert manifest.read_manifest(str(tmp_path)) == content
    path.unlink()


def test_cifar_100_is_described_by_its_archive(generate_here, tmp_path):
  flags = ['--data-dir', tmp_path, '--dataset', 'cifar100', '--labels', 'coarse']
  made = succeeded(generate_here(*flags, '--synthetic', 4))
  described = manifest.describe(str(tmp_path))
  assert (made['name'], described.name) == ('cifar100-coarse', 'cifar100-coarse')
  assert described.classes[:2] == ('group_00', 'group_01')
  assert described.num_classes == 20
  pixels = read(tmp_path, 'train')[0] / 255
  assert len(pixels) == 16  # Four fifths of 5 x 4.
  np.testing.assert_allclose(described.means, pixels.mean((0, 1, 2)), atol=1e-6)
