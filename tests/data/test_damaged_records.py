"""Record files that are not what they should be: one line with the file and the record's number."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
from outcome import refused

from cifar10 import report
from cifar10.core.errors import InputError
from cifar10.data import manifest, records
from cifar10.data.input_pipeline import Cifar10DataSet

COUNTS = {'train': 20, 'validation': 6, 'eval': 5}
FRAME = 3126  # Bytes: length 8, its CRC 4, an Example of 3,110, its CRC 4.


def example(**features):
  return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def numbers(*values):
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def strings(*values):
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def fractions(*values):
  return tf.train.Feature(float_list=tf.train.FloatList(value=values))


IMAGE = strings(bytes(records.IMAGE_BYTES))


def write(path, serialized):
  with tf.io.TFRecordWriter(str(path)) as writer:
    for record in serialized:
      writer.write(record)


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


def refusal(folder, split='train'):
  with pytest.raises(InputError) as error:
    Cifar10DataSet(str(folder), split).num_examples_per_epoch()
  assert '\n' not in str(error.value)
  return str(error.value)


def put(folder, number, record, split='train'):
  """Puts this record in the place of that one, with the right checksums."""
  path = manifest.record_path(str(folder), split)
  there = list(tf.compat.v1.io.tf_record_iterator(path))
  there[number - 1] = record
  write(path, there)


RECORDS = {
  'label 10': (example(image=IMAGE, label=numbers(10)), 'its `label` is [10], not one whole'),
  'label -1': (example(image=IMAGE, label=numbers(-1)), 'its `label` is [-1], not one whole'),
  'label 2**40': (
    example(image=IMAGE, label=numbers(2**40)),
    'its `label` is [1099511627776], not',
  ),
  'two labels': (example(image=IMAGE, label=numbers(0, 1)), 'its `label` is [0, 1], not one'),
  'a word': (example(image=IMAGE, label=strings(b'cat')), 'its `label` is [], not one whole'),
  'a fraction': (example(image=IMAGE, label=fractions(1.0)), 'its `label` is [], not one whole'),
  'label missing': (example(image=IMAGE), "no feature `label`; its features: ['image']"),
  'other names': (
    example(img=IMAGE, y=numbers(1)),
    "no feature `image` and `label`; its features: ['img', 'y']",
  ),
  '3,000 bytes': (
    example(image=strings(bytes(3000)), label=numbers(1)),
    'its `image` is not one string of 3072 bytes but of [3000]',
  ),
  '3,073 bytes': (example(image=strings(bytes(3073)), label=numbers(1)), 'but of [3073]'),
  'two images': (
    example(image=strings(bytes(3072), bytes(3072)), label=numbers(1)),
    'but of [3072, 3072]',
  ),
  'pixels as numbers': (example(image=numbers(*range(3072)), label=numbers(1)), 'but of []'),
  'no Example': (b'\xff\xff', 'it is no tf.train.Example'),
  'a PNG': (b'\x89PNG\r\n\x1a\n' + bytes(3000), 'it is no tf.train.Example'),
  'empty': (b'', 'no feature `image` and `label`; its features: []'),
}


@pytest.mark.parametrize('described_by', ['nothing', 'another program', 'its size and digest'])
@pytest.mark.parametrize('name', RECORDS)
def test_names_the_record_that_cannot_be(folder, name, described_by):
  record, fault = RECORDS[name]
  put(folder, 7, record)
  if described_by == 'another program':
    manifest.write_manifest(str(folder), {'name': 'cifar10', 'classes': list('abcdefghij')})
  elif described_by == 'its size and digest':
    described(folder)
  said = refusal(folder)
  assert f'{folder}/train.tfrecords: record 7 (counted from 1): ' in said
  assert fault in said
  assert 'restore it' in said or 'run: python generate' in said


@pytest.mark.parametrize('number', [1, COUNTS['train']])
def test_the_first_and_the_last_record_count(folder, number):
  put(folder, number, RECORDS['label 10'][0])
  assert f'record {number} (counted from 1)' in refusal(folder)
  described(folder)
  assert f'record {number} (counted from 1)' in refusal(folder)


# Of record 3: its length, the length's checksum, an image's byte, its label, its own checksum.
@pytest.mark.parametrize('byte', [0, 1, 5, 7, 9, 100, 2000, 3121, 3124])
def test_a_flipped_bit_is_found_where_it_is(folder, byte):
  path = folder / 'train.tfrecords'
  content = bytearray(path.read_bytes())
  content[2 * FRAME + byte] ^= 1 << 6
  path.write_bytes(content)
  assert 'train.tfrecords: record 3 (counted from 1): its bytes do not match' in refusal(folder)


@pytest.mark.parametrize('lost', [1, 4, 100, 3114])
def test_a_truncated_file_ends_inside_its_last_record(folder, lost):
  path = folder / 'train.tfrecords'
  path.write_bytes(path.read_bytes()[:-lost])
  assert 'record 20 (counted from 1): its bytes' in refusal(folder)


@pytest.mark.parametrize(
  ('content', 'fault'),
  [
    (b'', 'train.tfrecords holds 0 records'),
    (b'image,label\n0,1\n', 'record 1 (counted from 1): its bytes do not match its checksum'),
    (bytes(5000), 'record 1 (counted from 1): its bytes do not match its checksum'),
  ],
)
def test_a_file_of_something_else(folder, content, fault):
  (folder / 'train.tfrecords').write_bytes(content)
  assert fault in refusal(folder)


def test_other_forms_of_a_record_are_whole_too(folder):
  """Features in another order and more of them, of different sizes, verified or not."""
  extra = [
    example(image=IMAGE, label=numbers(9), name=strings(b'x' * length)) for length in (1, 20, 300)
  ]
  path = manifest.record_path(str(folder), 'train')
  write(path, extra)
  assert records.num_examples(str(folder), 'train') == 3
  described(folder, train=3)
  assert records.num_examples(str(folder), 'train') == 3


def test_labels_of_two_bytes(folder):
  """From 128 on: 128 classes allow 127, 201 classes allow 200."""
  path = manifest.record_path(str(folder), 'train')
  for num_classes, label, fault in [(128, 127, ''), (201, 200, ''), (200, 200, 'is [200], not')]:
    records.write_records(path, np.zeros([3, records.IMAGE_BYTES], np.uint8), [0, label, 5])
    classes = [f'class {number}' for number in range(num_classes)]
    described(folder, train=3, name='many', classes=classes)
    if fault:
      assert fault in refusal(folder)
    else:
      assert records.num_examples(str(folder), 'train') == 3


def test_a_class_too_few_is_found(folder):
  """Labels 0 to 9 and nine classes: the tenth record is the first with a label of none."""
  manifest.write_manifest(str(folder), {'name': 'mine', 'classes': list('abcdefghi')})
  said = refusal(folder)
  assert 'record 10 (counted from 1): its `label` is [9], not one whole number from 0 to 8' in said
  assert f'restore it, or correct {folder}/cifar10.json' in said


SMALL = ['--num-layers', 8, '--train-batch-size', 4, '--train-steps', 1]


@pytest.mark.parametrize(
  ('split', 'more'), [('train', ['--dry-run']), ('validation', []), ('eval', [])]
)
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
    said = refused(result)
    assert 'eval.tfrecords: record 2 (counted from 1): its `image` is not one' in said
  assert sorted(os.listdir(job)) == before
