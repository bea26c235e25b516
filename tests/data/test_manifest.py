"""Counting and verifying record files; manifests that are missing, damaged or made by hand."""

import json
import re
import shlex

import numpy as np
import pytest

from cifar10.core.errors import InputError
from cifar10.data import manifest, records


def make_records(path, count=4):
  images = np.zeros([count, records.IMAGE_BYTES], np.uint8)
  records.write_records(str(path), images, range(count))


@pytest.fixture
def folder(tmp_path):
  """A data dir of 4 examples a split, without a manifest."""
  for split in manifest.SPLITS:
    make_records(manifest.record_path(str(tmp_path), split))
  return str(tmp_path)


def write_manifest(folder, **more):
  entries = {
    split: manifest.entry(manifest.record_path(folder, split), 4) for split in manifest.SPLITS
  }
  manifest.write_manifest(folder, {**more, 'subsets': entries})


def damage(folder, split='eval'):
  path = manifest.record_path(folder, split)
  with open(path, 'r+b') as file:
    file.seek(1000)
    byte = file.read(1)[0]
    file.seek(1000)
    file.write(bytes([byte ^ 1]))


def test_num_examples_by_scan_and_by_manifest(folder):
  assert records.num_examples(folder, 'eval') == 4
  write_manifest(folder)
  assert records.num_examples(folder, 'eval') == 4
  with open(manifest.record_path(folder, 'eval'), 'ab') as file:
    file.write(b'x')
  with pytest.raises(InputError, match='is damaged'):
    records.num_examples(folder, 'eval')


def test_one_changed_byte_is_found(folder):
  write_manifest(folder)
  damage(folder)
  with pytest.raises(
    InputError, match=r'eval\.tfrecords is damaged: size or SHA-256 is not what .*--force'
  ):
    records.num_examples(folder, 'eval')
  assert records.num_examples(folder, 'train') == 4


def test_a_missing_file_names_the_command(tmp_path):
  with pytest.raises(InputError, match=r'eval\.tfrecords is missing; run: python generate_'):
    records.num_examples(str(tmp_path), 'eval')


def test_the_remedy_has_the_flags_that_made_the_records(folder):
  write_manifest(folder, name='photos', classes=['a', 'b'], flags="--images '/my photos'")
  damage(folder)
  with pytest.raises(
    InputError, match=re.escape(f"--data-dir {shlex.quote(folder)} --images '/my photos' --force")
  ):
    records.num_examples(folder, 'eval')


def test_no_command_is_the_remedy_for_what_was_made_by_hand(folder):
  write_manifest(folder, name='shapes', classes=['circle', 'square'])
  damage(folder)
  with pytest.raises(InputError, match=r'restore it, or correct .*cifar10\.json$'):
    records.num_examples(folder, 'eval')


def test_a_manifest_by_hand_need_not_count(folder):
  manifest.write_manifest(folder, {'name': 'shapes', 'classes': list('abcd')})
  assert records.num_examples(folder, 'train') == 4
  assert manifest.digests(folder) is None
  manifest.write_manifest(folder, {'format': 2})
  assert records.num_examples(folder, 'train') == 4


def test_the_remedy_for_another_s_files_is_not_to_replace_them_alone(folder):
  manifest.write_manifest(folder, {'classes': ['circle'], 'subsets': []})
  with pytest.raises(InputError, match='restore it, or run: '):
    manifest.read_manifest(folder)


def test_a_count_that_is_not_the_files_is_refused(folder):
  """Bytes and digest fit, but training would draw examples that are not there."""
  write_manifest(folder)
  content = manifest.read_manifest(folder)
  content['subsets']['train']['examples'] = 5000
  manifest.write_manifest(folder, content)
  with pytest.raises(InputError, match='holds 4 records and its manifest says 5000'):
    records.num_examples(folder, 'train')


def test_digests_tell_data_apart(folder):
  assert manifest.digests(folder) is None
  write_manifest(folder)
  digest = manifest.file_digest(manifest.record_path(folder, 'eval'))
  assert manifest.digests(folder) == dict.fromkeys(manifest.SPLITS, digest)  # Equal files.


def entry(**changed):
  return {
    'subsets': {s: {'examples': 1, 'bytes': 2, 'sha256': 's', **changed} for s in manifest.SPLITS}
  }


@pytest.mark.parametrize(
  'content',
  [
    '{',
    '[]',
    '"name"',
    '5',
    '{"subsets": {"train": 3}}',
    '{"name": "shapes", "subsets": []}',
    json.dumps(entry(examples='1')),
    json.dumps(entry(examples=True)),
    json.dumps(entry(bytes=1.5)),
    json.dumps(entry(sha256=None)),
  ],
)
def test_refuses_a_damaged_manifest(tmp_path, content):
  (tmp_path / manifest.MANIFEST_NAME).write_text(content)
  with pytest.raises(InputError, match=r'cifar10\.json is no manifest'):
    manifest.read_manifest(str(tmp_path))


@pytest.mark.parametrize('written_as', [3, 0, '2', None])
def test_refuses_another_format(tmp_path, written_as):
  manifest.write_manifest(str(tmp_path), {'format': written_as, **entry()})
  with pytest.raises(InputError, match=f'has format {written_as!r} and this program reads 1 to 2'):
    manifest.read_manifest(str(tmp_path))


def test_refuses_a_manifest_that_cannot_be_read(tmp_path):
  (tmp_path / manifest.MANIFEST_NAME).mkdir()
  with pytest.raises(InputError, match=r'cifar10\.json cannot be read'):
    manifest.read_manifest(str(tmp_path))
