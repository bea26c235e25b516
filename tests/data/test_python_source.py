"""Examples from a Python function: found, checked, counted, cut into chunks."""

import re
import sys

import checkout
import given_sources
import numpy as np
import pytest

from cifar10.core.errors import InputError, SourceError
from cifar10.data.python_source import PythonSource


def source(name):
  return PythonSource(f'given_sources:{name}')


def read(name, *shard):
  """All labels and images of one epoch, and the chunks' sizes."""
  chunks = list(source(name).chunks(10, *shard))
  images = np.concatenate([chunk.images for chunk in chunks])
  labels = np.concatenate([chunk.labels for chunk in chunks])
  assert (images.dtype, labels.dtype) == (np.uint8, np.int32)
  assert images.shape == (len(labels), 32, 32, 3)
  return labels.tolist(), given_sources.numbers(images), [len(chunk.labels) for chunk in chunks]


@pytest.mark.parametrize(
  ('name', 'sizes'),
  [('ones', [96]), ('listed', [96]), ('Flow', [96]), ('batches', [40, 40, 16]), ('shards', [96])],
)
def test_an_epoch_in_the_functions_order(name, sizes):
  expected = [number % 10 for number in range(96)], list(range(96)), sizes
  assert read(name) == expected


def test_single_examples_and_batches_keep_their_order():
  assert read('mixed') == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [5])


def _into(buffer, items):
  for images, label in items:
    buffer[...] = images
    yield buffer, label


@pytest.mark.parametrize(
  ('made', 'shape', 'sizes'),
  [
    (given_sources.listed(), (), [96]),
    ([*given_sources.batches()][:2], (40,), [40, 40]),  # The third is smaller than the array.
  ],
)
def test_a_function_may_write_each_image_into_the_same_array(made, shape, sizes):
  buffer = np.zeros([*shape, 32, 32, 3], np.uint8)
  sys.modules['given_sources'].reused = lambda: _into(buffer, made)
  numbers = list(range(sum(sizes)))
  assert read('reused') == ([number % 10 for number in numbers], numbers, sizes)


def test_a_function_may_yield_rows_of_a_block_that_it_fills_again():
  def reused():
    block = np.zeros([8, 32, 32, 3], np.uint8)
    for images, labels in given_sources.batches():
      for start in range(0, len(labels), 8):
        block[...] = images[start : start + 8]
        yield from zip(block, labels[start : start + 8])

  sys.modules['given_sources'].reused = reused
  numbers = list(range(96))
  assert read('reused') == ([number % 10 for number in numbers], numbers, [96])


def test_a_function_may_write_each_label_into_the_same_array():
  def reused():
    pixels, label = np.zeros([32, 32, 3], np.uint8), np.zeros([], np.int64)
    for image, number in given_sources.ones():
      pixels[...], label[...] = image, number
      yield pixels, label

  sys.modules['given_sources'].reused = reused
  numbers = list(range(96))
  assert read('reused') == ([number % 10 for number in numbers], numbers, [96])


def test_batches_between_single_examples_may_lie_in_the_same_array():
  """Numbers 0 to 8: one alone, then two in the same arrays, and so on."""

  def reused():
    pixels, labels = np.zeros([2, 32, 32, 3], np.uint8), np.zeros([2], np.int64)
    for start in range(0, 9, 3):
      yield given_sources.image(start), start
      pixels[...] = [given_sources.image(start + 1), given_sources.image(start + 2)]
      labels[...] = start + 1, start + 2
      yield pixels, labels

  sys.modules['given_sources'].reused = reused
  assert read('reused') == (list(range(9)), list(range(9)), [9])


def test_chunks_are_of_512():
  """6 x 96 = 576 = 512 + 64."""
  module = sys.modules['given_sources']
  module.often = lambda: given_sources.listed() * 6
  assert read('often')[2] == [512, 64]


def test_a_shard():
  """Of 96 examples every third from the second on: 1, 4, ..., 94."""
  labels, numbers, _ = read('shards', 1, 3)
  assert numbers == list(range(1, 96, 3))
  assert labels == [number % 10 for number in numbers]


@pytest.mark.parametrize('name', ['ones', 'listed', 'Flow'])
def test_each_epoch_is_an_iteration(name):
  """Flow holds that it is reset once, and read by one at a time."""
  found = source(name)
  found.check(10, 96)
  for _ in range(2):
    assert sum(len(chunk.labels) for chunk in found.chunks(10)) == 96


def test_the_length_of_an_epoch():
  assert source('Flow').check(10) == source('listed').check(10) == 96
  assert source('Flow').check(10, 50) == 50  # What is said counts.
  sys.modules['given_sources'].listed_batches = lambda: [*given_sources.batches()][:2]
  assert source('listed_batches').check(10) == 80  # Two of 40.


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('missing', 'there is no missing in .*given_sources.py; name another'),
    ('no_function', 'is 7, not a function; name another'),
    ('other_parameters', r'has the parameters \(folder\); it must have none, or \(shard, num_sh'),
    ('nothing', 'yields no examples'),
    ('not_iterable', 'returns 7, which cannot be iterated over'),
    ('raises_first', r"example 1 .*: KeyError: 'no such thing' \(.*given_sources.py, line \d+\)"),
    ('no_pair', 'example 1 .*: it is a dict, not .image, label.'),
    ('wrong_dtype', r'example 1 .*: its image is float32 \[32, 32, 3\], not uint8 \[32, 32, 3\]'),
    ('wrong_label_kind', r'example 1 .*: its label is array\(1\.\), not a whole number'),
    (
      'wrong_labels',
      r'example 1 .*: its labels have the shape \[2\] and its images \[3, 32',
    ),
    ('ones', 'does not say how many examples .* add --examples-per-epoch'),
  ],
)
def test_what_is_refused_at_once(name, message):
  with pytest.raises(InputError, match=f'^--source given_sources:{name}.*{message}'):
    source(name).check(10)


def test_modules_that_cannot_be_imported(tmp_path, monkeypatch):
  with pytest.raises(InputError, match=r'^--source no_such:f cannot be imported: ModuleNotFound'):
    PythonSource('no_such:f')
  (tmp_path / 'broken_source.py').write_text('import os\n1 / 0\n')
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(
    InputError, match=r'imported: ZeroDivisionError: .* \(.*broken_source.py, line 2\)'
  ):
    PythonSource('broken_source:f')


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('wrong_shape', r'example 7 .counted from 1.: its image is uint8 \[28, 28\], not uint8'),
    ('late_label', r'example 46 .*: its label is 10, not 0 to 9'),
    ('wrong_label_between', r'example 4 .*: its label is array\(True\), not a whole number'),
    ('wrong_and_raises', r'example 7 .*: its image is uint8 \[28, 28\]'),
    ('raises_late', "example 97 .*: KeyError: 'no such thing' "),
  ],
)
def test_what_shows_later(name, message):
  found = source(name)
  assert found.check(10, 96) == 96
  with pytest.raises(SourceError, match=f'^--source given_sources:{name}: {message}'):
    list(found.chunks(10))


def test_a_shard_is_named():
  with pytest.raises(
    SourceError, match=r'^--source given_sources:shards, shard 1 of 2: example 3 '
  ):
    list(source('shards').chunks(5, 1, 2))  # Numbers 1, 3, 5: the first label that is too large.


def test_an_iterator_that_is_not_made_anew():
  found = source('used_up')
  given_sources.exhausted = given_sources.ones()
  list(found.chunks(10))
  with pytest.raises(SourceError, match=r'yields no examples; .* must make it anew'):
    list(found.chunks(10))


@pytest.mark.parametrize(
  ('function', 'takes'),
  [
    (lambda: [], False),
    (lambda folder='x', size=3: [], False),
    (lambda shard, num_shards: [], True),
    (lambda part, parts: [], True),
    (lambda shard=0, num_shards=1: [], True),
  ],
)
def test_which_functions_take_shards(function, takes, monkeypatch):
  monkeypatch.setattr(given_sources, 'function', function, raising=False)
  assert source('function').takes_shards is takes


def test_the_example_of_the_docs(tmp_path, monkeypatch):
  text = checkout.read('docs/data.md')
  block = re.search('```python\n((?:(?!```).)*class Squares.*?)```', text, re.S)[1]
  (tmp_path / 'my_source.py').write_text(block)
  monkeypatch.syspath_prepend(tmp_path)
  found = PythonSource('my_source:Squares')
  assert found.check(10) == 1000
  whole, *parts = (
    np.concatenate([chunk.labels for chunk in found.chunks(10, *shard)])
    for shard in ((0, 1), (0, 2), (1, 2))
  )
  assert whole.tolist() == list(range(10)) * 100
  assert np.bincount(np.concatenate(parts)).tolist() == [100] * 10
