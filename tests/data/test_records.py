"""Records against bytes worked out by hand; files that are not what they should be."""

import json
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from outcome import refused

from cifar10 import report
from cifar10.core.errors import InputError
from cifar10.data import manifest, records

COUNTS = {'train': 20, 'validation': 6, 'eval': 5}
FRAME = 3126  # Bytes: length 8, its CRC 4, an Example of 3,110, its CRC 4.


def test_an_example_has_the_old_programs_features():
  image = np.arange(records.IMAGE_BYTES).astype(np.uint8)
  written = tf.train.Example.FromString(records.encode_example(image, 7))
  old = example(image=[bytes(range(256)) * 12], label=[7])
  assert written == tf.train.Example.FromString(old)


def test_reads_what_it_writes(tmp_path):
  images = np.arange(4 * records.IMAGE_BYTES).reshape(4, -1).astype(np.uint8)
  records.write_records(str(tmp_path / 'a'), images, range(4))
  read, labels = records.parse_examples(tf.stack(list(tf.data.TFRecordDataset(f'{tmp_path}/a'))))
  np.testing.assert_array_equal(np.moveaxis(read, 3, 1).reshape(4, -1), images)
  assert labels.numpy().tolist() == [0, 1, 2, 3]
  assert (read.dtype, labels.dtype) == (tf.uint8, tf.int32)


def test_an_interrupted_write_keeps_the_good_file(tmp_path, monkeypatch):
  path = tmp_path / 'train.tfrecords'
  path.write_bytes(b'good')
  monkeypatch.setattr(records, 'encode_example', mock.Mock(side_effect=KeyboardInterrupt))
  with pytest.raises(KeyboardInterrupt):
    records.write_records(str(path), np.zeros([3, records.IMAGE_BYTES], np.uint8), range(3))
  assert path.read_bytes() == b'good'
  assert os.listdir(tmp_path) == ['train.tfrecords']


def test_what_records_cannot_hold_is_not_written(tmp_path):
  for shape, labels in [([2, 32, 32, 3], [0, 1]), ([3, 3072], [0, 1]), ([2, 3072], [0, 0.7])]:
    with pytest.raises(InputError, match='cannot hold images'):
      records.write_records(f'{tmp_path}/train.tfrecords', np.zeros(shape, np.uint8), labels)
  assert os.listdir(tmp_path) == []


def example(**features):
  """A serialized Example of lists of bytes or of whole numbers."""
  made = tf.train.Example()
  for name, values in features.items():
    kind = 'bytes_list' if isinstance(values[0], bytes) else 'int64_list'
    getattr(made.features.feature[name], kind).value.extend(values)
  return made.SerializeToString()


IMAGE = [bytes(records.IMAGE_BYTES)]
RECORDS = {
  'label 10': (example(image=IMAGE, label=[10]), '`label`'),
  'label -1': (example(image=IMAGE, label=[-1]), '`label`'),
  'other names': (example(img=IMAGE, y=[1]), "`image` .*it has ['img', 'y']"),
  '3,000 bytes': (example(image=[bytes(3000)], label=[1]), '`image` .*[3000]'),
  'pixels as numbers': (example(image=range(3072), label=[1]), '`image`'),
  'a PNG': (b'\x89PNG\r\n\x1a\n' + bytes(3000), 'it is no tf.train.Example'),
}


@pytest.fixture
def folder(tmp_path):
  """Record files without a manifest."""
  rng = np.random.default_rng(0)
  path = tmp_path / 'data'
  path.mkdir()
  for split, count in COUNTS.items():
    images = rng.integers(0, 256, [count, records.IMAGE_BYTES]).astype(np.uint8)
    records.write_records(manifest.record_path(str(path), split), images, np.arange(count) % 10)
  return path


def described(folder, train=COUNTS['train'], **more):
  """Adds a manifest whose counts and digests are right, of so many training examples."""
  counts = {**COUNTS, 'train': train}
  splits = {
    name: manifest.entry(manifest.record_path(str(folder), name), count)
    for name, count in counts.items()
  }
  manifest.write_manifest(str(folder), {'subsets': splits, **more})


def test_what_cannot_be_read_is_named(folder, monkeypatch):
  def unreadable(path):
    raise tf.errors.PermissionDeniedError(None, None, f'{path}; Permission denied')

  monkeypatch.setattr(tf.compat.v1.io, 'tf_record_iterator', unreadable)
  assert 'train.tfrecords; Permission denied); name another --data-dir' in refusal(folder)


def refusal(folder, split='train'):
  with pytest.raises(InputError) as error:
    records.num_examples(str(folder), split)
  assert '\n' not in str(error.value)
  return str(error.value)


def put(folder, number, record, split='train'):
  """Puts this record in the place of that one, with the right checksums."""
  path = manifest.record_path(str(folder), split)
  there = list(tf.compat.v1.io.tf_record_iterator(path))
  with tf.io.TFRecordWriter(path) as writer:
    for each in (*there[: number - 1], record, *there[number:]):
      writer.write(each)


@pytest.mark.parametrize('name', RECORDS)
def test_names_the_record_that_cannot_be(folder, name):
  record, fault = RECORDS[name]
  put(folder, 7, record)
  said = refusal(folder)
  assert f'{folder}/train.tfrecords: record 7 (counted from 1): ' in said
  assert all(part in said for part in fault.split('.*'))
  assert 'restore it, or run: python generate' in said


def test_damaged_bytes_are_found_where_they_are(folder):
  path = folder / 'train.tfrecords'
  whole = path.read_bytes()
  # Of record 3: its length, the length's checksum, an image's byte, its own checksum.
  places = [2 * FRAME + byte for byte in (0, 8, 100, 3124)]
  flipped = [whole[:at] + bytes([whole[at] ^ 1 << 6]) + whole[at + 1 :] for at in places]
  for content, fault in [
    *((content, 'record 3 (counted from 1): its bytes do not match') for content in flipped),
    (whole[:-1], 'record 20 (counted from 1): its bytes'),
    (b'image,label\n0,1\n', 'record 1 (counted from 1): its bytes'),
    (b'', 'holds 0 records'),
  ]:
    path.write_bytes(content)
    assert fault in refusal(folder)
  path.unlink()
  assert 'train.tfrecords is missing; run: python generate_' in refusal(folder)


def test_a_class_too_few_is_found(folder):
  """Labels 0 to 9 and nine classes: the tenth record is the first with a label of none."""
  manifest.write_manifest(str(folder), {'name': 'mine', 'classes': list('abcdefghi')})
  said = refusal(folder)
  assert 'record 10 (counted from 1): ' in said
  assert 'its `label` one whole number from 0 to 8 and is [9]' in said
  assert f'restore it, or correct {folder}/cifar10.json' in said


def test_what_differs_from_its_manifest_is_damaged(folder):
  """Whoever wrote it: the generator says in `source` where the records come from."""
  for more in ({}, {'source': 'synthetic'}):
    described(folder, **more)
    assert [records.num_examples(str(folder), split) for split in COUNTS] == [20, 6, 5]
    whole = (folder / 'eval.tfrecords').read_bytes()
    for damaged in (whole[:-1], whole[:1000] + b'x' + whole[1001:]):
      (folder / 'eval.tfrecords').write_bytes(damaged)
      assert 'eval.tfrecords is damaged: its SHA-256' in refusal(folder, 'eval')
    (folder / 'eval.tfrecords').write_bytes(whole)
  # Somebody else's digest fits, but training would draw examples that are not there.
  described(folder, train=5000)
  assert 'holds 20 records and its manifest says 5000' in refusal(folder)


SMALL = ['--num-layers', 8, '--train-batch-size', 4, '--train-steps', 1]


@pytest.mark.parametrize(('split', 'more'), [('train', ['--dry-run']), ('eval', [])])
def test_training_refuses_before_the_job_dir_is_touched(run_here, folder, tmp_path, split, more):
  put(folder, 5, RECORDS['label 10'][0], split)
  job = tmp_path / 'job'
  line = refused(run_here('--data-dir', folder, '--job-dir', job, *SMALL, *more))
  assert line.startswith(f'error: {folder}/{split}.tfrecords: record 5 (counted from 1): ')
  assert not job.exists()


def test_evaluation_and_report_refuse(run_here, folder, tmp_path):
  job = tmp_path / 'job'
  trained = run_here('--data-dir', folder, '--job-dir', job, *SMALL, '--mode', 'train')
  assert json.loads(trained.stdout)['global_step'] == 1
  before = sorted(os.listdir(job))
  put(folder, 2, RECORDS['3,000 bytes'][0], 'eval')
  evaluate = ['--mode', 'evaluate', '--data-dir', folder, '--job-dir', job]
  for result in (run_here(*evaluate), run_here(job, '--table', command=report)):
    assert 'eval.tfrecords: record 2 (counted from 1): its `image` is to be one' in refused(result)
  assert sorted(os.listdir(job)) == before
