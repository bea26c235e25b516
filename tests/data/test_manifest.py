"""Counting and verifying record files; manifests that are missing, damaged or made by hand."""

import json

import numpy as np
import pytest

from cifar10.core.errors import InputError
from cifar10.data import manifest, records


@pytest.fixture
def folder(tmp_path):
  """A data dir of 4 examples a split, without a manifest."""
  for split in manifest.SUBSETS:
    path = manifest.record_path(str(tmp_path), split)
    records.write_records(path, np.zeros([4, records.IMAGE_BYTES], np.uint8), range(4))
  return str(tmp_path)


def write_manifest(folder, count=4, **more):
  paths = {split: manifest.record_path(folder, split) for split in manifest.SUBSETS}
  entries = {split: manifest.entry(path, count) for split, path in paths.items()}
  manifest.write_manifest(folder, {**more, 'subsets': entries})


def damage(folder):
  with open(manifest.record_path(folder, 'eval'), 'r+b') as file:
    file.seek(1000)
    file.write(b'x')


def test_what_differs_from_its_manifest_is_damaged(folder):
  assert records.num_examples(folder, 'eval') == 4
  assert manifest.digests(folder) is None
  write_manifest(folder)
  assert records.num_examples(folder, 'eval') == 4
  digest = manifest.file_digest(manifest.record_path(folder, 'eval'))
  assert manifest.digests(folder) == dict.fromkeys(manifest.SUBSETS, digest)  # Equal files.
  damage(folder)
  with pytest.raises(
    InputError, match=r'eval\.tfrecords is damaged: size or SHA-256 is not what .*--force'
  ):
    records.num_examples(folder, 'eval')
  assert records.num_examples(folder, 'train') == 4
  # Bytes and digest fit, but training would draw examples that are not there.
  write_manifest(folder, count=5000)
  with pytest.raises(InputError, match='holds 4 records and its manifest says 5000'):
    records.num_examples(folder, 'train')


@pytest.mark.parametrize(
  ('made_by', 'remedy'),
  [
    ({'name': 'pets', 'classes': ['a', 'b'], 'flags': "--images '/my pets'"}, 'run: python'),
    ({'name': 'shapes', 'classes': ['circle', 'square']}, 'restore it, or correct {}/cifar10.json'),
    ({}, 'restore it, or run: python'),
  ],
)
def test_the_remedy_has_the_flags_that_made_the_records(folder, made_by, remedy):
  write_manifest(folder, **made_by)
  damage(folder)
  with pytest.raises(InputError) as refusal:
    records.num_examples(folder, 'eval')
  if remedy.endswith('python'):
    remedy += ' generate_cifar10_tfrecords.py --data-dir {}'
    remedy += f' {made_by["flags"]} --force' if made_by else ' --force'
  assert str(refusal.value).endswith(f'; {remedy.format(folder)}')


def test_a_missing_file_names_the_command(tmp_path):
  with pytest.raises(InputError, match=r'eval\.tfrecords is missing; run: python generate_'):
    records.num_examples(str(tmp_path), 'eval')


def test_a_manifest_by_hand_need_not_count(folder):
  for content in ({'name': 'shapes', 'classes': list('abcd')}, {'format': 2}):
    manifest.write_manifest(folder, content)
    assert records.num_examples(folder, 'train') == 4
    assert manifest.digests(folder) is None


def entry(**changed):
  whole = {'examples': 1, 'bytes': 2, 'sha256': 's', **changed}
  return {'subsets': dict.fromkeys(manifest.SUBSETS, whole)}


@pytest.mark.parametrize(
  'content',
  [
    '{',
    '[]',
    '5',
    '{"subsets": {"train": 3}}',
    '{"name": "shapes", "subsets": []}',
    json.dumps(entry(examples='1')),
    json.dumps(entry(bytes=1.5)),
    json.dumps(entry(sha256=None)),
  ],
)
def test_refuses_a_damaged_manifest(tmp_path, content):
  (tmp_path / manifest.MANIFEST_NAME).write_text(content)
  with pytest.raises(InputError, match=r'cifar10\.json is no manifest .*(restore it, or|run: )'):
    manifest.read_manifest(str(tmp_path))


@pytest.mark.parametrize('written_as', [3, 0, '2', None])
def test_refuses_another_format(tmp_path, written_as):
  manifest.write_manifest(str(tmp_path), {'format': written_as, **entry()})
  with pytest.raises(InputError, match=f'has format {written_as!r} and this program reads 1 to 2'):
    manifest.read_manifest(str(tmp_path))
