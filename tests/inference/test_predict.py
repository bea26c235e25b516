"""Predictions for files and folders: a stream, in which a bad file stops no good one."""

import collections
import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from checkout import ROOT
from outcome import refused, succeeded

from cifar10.exporters import predict

BAD = [b'', b'no image', b'\x89PNG\r\n\x1a\n' + bytes(50), b'\xff\xd8\xff\xe0' + bytes(50)]


def write_image(path, seed=0):
  path.parent.mkdir(parents=True, exist_ok=True)
  image = np.random.default_rng(seed).integers(0, 256, [32, 32, 3]).astype(np.uint8)
  path.write_bytes(tf.io.encode_png(image).numpy())
  return path


def lines(result):
  return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_folder_means_what_is_in_and_below_it_but_for_hidden_files_and_links(tmp_path):
  for name in ('b.png', 'a.png', 'sub/c.png', 'sub/.hidden.png', '.cache/d.png', '[x].png'):
    write_image(tmp_path / name)
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'sub' / 'back').symlink_to(tmp_path)
  found = [os.path.relpath(path, tmp_path) for path in predict.files_of(str(tmp_path))]
  assert found == ['[x].png', 'a.png', 'b.png', 'sub/c.png']
  for name in ('b.png', '[x].png', 'empty', 'gone.png'):
    assert predict.files_of(str(tmp_path / name)) == [str(tmp_path / name)]


def test_bad_files_have_an_error_and_the_others_go_on(old_job, run_here, tmp_path):
  folder = tmp_path / 'images'
  good = [write_image(folder / f'{number}.png', number) for number in range(3)]
  for number, content in enumerate(BAD):
    (folder / f'bad{number}.png').write_bytes(content)
  os.mkfifo(folder / 'pipe.png')
  (folder / 'link.png').symlink_to('nowhere')
  predict_with = ['--job-dir', old_job, '--mode', 'predict', '--images']
  expected = lines(run_here(*predict_with, *good))
  result = run_here(*predict_with, tmp_path / 'gone.png', folder, good[1])
  found = lines(result)
  assert [os.path.basename(line['file']) for line in found] == [
    *('gone.png', '0.png', '1.png', '2.png'),
    *('bad0.png', 'bad1.png', 'bad2.png', 'bad3.png'),
    *('link.png', 'pipe.png', '1.png'),
  ]
  for line in expected:  # Kernels are others for batches of another size.
    line['probabilities'] = pytest.approx(line['probabilities'], rel=1e-4, abs=2e-6)
  assert [line for line in found if 'class' in line] == [*expected, expected[1]]
  errors = {os.path.basename(line['file']): line['error'] for line in found if 'error' in line}
  assert len(errors) == 7
  assert errors['gone.png'] == f'image {tmp_path}/gone.png does not exist'
  assert errors['pipe.png'].endswith('pipe.png is no file')
  assert all('cannot be read as PNG, JPEG or WebP' in errors[f'bad{n}.png'] for n in range(4))
  assert result.returncode == 1
  assert result.stderr.splitlines()[-1] == (
    'error: 7 of 11 images could not be read; their lines of the result say why'
  )


def test_images_do_not_pile_up():
  """Of 3,000 images no more than a batch is read before the first is answered."""
  read = []

  def images():
    for number in range(3000):
      read.append(number)
      yield {'index': number}, np.zeros([32, 32, 3], np.uint8)

  def is_a_cat(batch):
    return np.zeros(len(batch), np.int64), np.tile([1.0, 0.0], [len(batch), 1])

  classifier = mock.MagicMock(side_effect=is_a_cat, classes=['cat', 'dog'])
  given = classifier, images(), 3000, collections.Counter()
  for count, answer in enumerate(predict.predict(*given)):
    assert (answer['index'], answer['class']) == (count, 'cat')
    assert len(read) - count <= 100
  assert len(read) == 3000
  classifier.__exit__.assert_called_once()


@pytest.mark.long
def test_who_reads_only_the_first_line_ends_it_without_a_traceback(old_job, tmp_path):
  path = write_image(tmp_path / 'a.png')
  flags = ['--job-dir', old_job, '--mode', 'predict', '--images', *[path] * 2000]
  words = [sys.executable, f'{ROOT}/cifar10_main.py', *map(str, flags)]
  with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
    assert json.loads(writer.stdout.readline())['file'] == str(path)
    writer.stdout.close()
    assert 'Traceback' not in writer.stderr.read()
  assert writer.returncode == 141


def test_a_split_is_classified_into_a_file(old_job, run_here, data_dir, tmp_path):
  """With the accuracy that an evaluation of the split has."""
  split = ['--job-dir', old_job, '--data-dir', data_dir, '--subset', 'eval']
  evaluated = lines(run_here(*split, '--mode', 'evaluate'))[-1]
  out = tmp_path / 'a.jsonl'
  assert succeeded(run_here(*split, '--mode', 'predict', '--out', out)) == {
    'out': str(out),
    'images': 70,
    'unreadable': 0,
    'accuracy': pytest.approx(evaluated['accuracy'], abs=1e-6),
  }
  said = [json.loads(line) for line in out.read_text().splitlines()]
  names = list(said[0]['probabilities'])
  assert [line['index'] for line in said] == list(range(70))
  assert [names.index(line['label']) for line in said] == [number % 10 for number in range(70)]
  for line in said:
    assert line['class'] == max(names, key=line['probabilities'].get)
    assert sum(line['probabilities'].values()) == pytest.approx(1, abs=1e-5)


def test_a_split_that_is_not_there_is_refused(old_job, run_here):
  flags = ['--job-dir', old_job, '--mode', 'predict', '--subset', 'eval']
  assert '--mode predict needs --data-dir DIR' in refused(run_here(*flags))
  assert '/eval.tfrecords is missing' in refused(run_here(*flags, '--data-dir', '/'))
