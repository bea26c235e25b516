"""Predictions for files, folders and patterns: a stream, in which a bad file stops no good one."""

import contextlib
import csv
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import numpy as np
import pytest
import tensorflow as tf
from checkout import ROOT
from outcome import refused, succeeded

from cifar10.data import image_files
from cifar10.exporters import predict

SUB = ['photos/sub/c.png']
BAD = [b'', b'no image', b'\x89PNG\r\n\x1a\n' + bytes(50), b'\xff\xd8\xff\xe0' + bytes(50)]
GOOD = {'file': 'a.png', 'class': 'cat', 'probabilities': {'cat': 0.75, 'dog': 0.25}}
UNREAD = {'file': 'b.png', 'error': 'it is none'}


def write_image(path, seed=0, size=(32, 32)):
  path.parent.mkdir(parents=True, exist_ok=True)
  image = np.random.default_rng(seed).integers(0, 256, [*size, 3]).astype(np.uint8)
  path.write_bytes(tf.io.encode_png(image).numpy())
  return path


def lines(result):
  return [json.loads(line) for line in result.stdout.splitlines()]


def rounded(line):
  """A line whose numbers may differ as kernels do, which are others for batches of another size."""
  return {**line, 'probabilities': pytest.approx(line['probabilities'], rel=1e-4, abs=2e-6)}


def names(tmp_path, *given):
  found = predict.each_file([str(tmp_path / name) for name in given])
  return [os.path.relpath(path, tmp_path) for path in found]


@pytest.fixture
def photos(tmp_path):
  for name in ('b.png', 'a.png', 'sub/c.png', 'sub/.hidden.png', '.cache/d.png', '[x].png'):
    write_image(tmp_path / 'photos' / name)
  (tmp_path / 'photos' / 'empty').mkdir()
  return tmp_path


@pytest.mark.parametrize(
  ('given', 'found'),
  [
    (['photos/b.png', 'photos/a.png'], ['photos/b.png', 'photos/a.png']),
    (['photos'], ['photos/[x].png', 'photos/a.png', 'photos/b.png', 'photos/sub/c.png']),
    (['photos/[x].png'], ['photos/[x].png']),  # It is there.
    (['photos/**/c.png'], ['photos/sub/c.png']),
    (['photos/*'], ['photos/[x].png', 'photos/a.png', 'photos/b.png', 'photos/empty', *SUB]),
    (['photos/*.jpg', 'photos/empty', 'gone.png'], ['photos/*.jpg', 'photos/empty', 'gone.png']),
    (['photos/a.png', 'photos/a.png'], ['photos/a.png', 'photos/a.png']),
  ],
)
def test_which_files_are_meant(photos, given, found):
  assert names(photos, *given) == found


def test_each_file_counts_once_and_no_link_is_followed(photos):
  assert sorted(names(photos, 'photos/**')) == sorted([*names(photos, 'photos'), 'photos/empty'])
  (photos / 'photos' / 'sub' / 'back').symlink_to(photos / 'photos')
  assert names(photos, 'photos')[-1:] == SUB


def test_bad_files_have_an_error_and_the_others_go_on(old_job, run_here, tmp_path):
  folder = tmp_path / 'images'
  good = [write_image(folder / f'{number}.png', number) for number in range(3)]
  for number, content in enumerate(BAD):
    (folder / f'bad{number}.png').write_bytes(content)
  os.mkfifo(folder / 'pipe.png')
  (folder / 'link.png').symlink_to('nowhere')
  predict_with = ['--job-dir', old_job, '--mode', 'predict', '--images']
  expected = lines(run_here(*predict_with, *good))
  result = run_here(*predict_with, tmp_path / 'gone.png', folder, tmp_path / 'n*thing', good[1])
  found = lines(result)
  assert [os.path.basename(line['file']) for line in found] == [
    *('gone.png', '0.png', '1.png', '2.png'),
    *('bad0.png', 'bad1.png', 'bad2.png', 'bad3.png'),
    *('link.png', 'pipe.png', 'n*thing', '1.png'),
  ]
  answers = [line for line in found if 'class' in line]
  assert answers == [rounded(line) for line in (*expected, expected[1])]
  errors = {os.path.basename(line['file']): line['error'] for line in found if 'error' in line}
  assert len(errors) == 8
  assert errors['gone.png'] == f'image {tmp_path}/gone.png does not exist'
  assert errors['pipe.png'].endswith('pipe.png is no file')
  assert all('cannot be read as PNG, JPEG or WebP' in errors[f'bad{n}.png'] for n in range(4))
  assert result.returncode == 1
  assert result.stderr.splitlines()[-1] == (
    'error: 8 of 12 images could not be read; their lines of the result say why'
  )


def test_images_do_not_pile_up():
  """Of 3,000 images no more than a batch is read before the first is answered."""
  read = []

  def images():
    for number in range(3000):
      read.append(number)
      yield predict.Image({'index': number}, np.zeros([32, 32, 3], np.uint8))

  class Classifier:
    """Says 0 of every image: what is measured is the stream."""

    is_closed = False

    def __call__(self, batch):
      return np.zeros(len(batch), np.int64), np.tile([1.0, 0.0], [len(batch), 1])

    def close(self):
      self.is_closed = True

  classifier = Classifier()
  for count, answer in enumerate(predict.predict(classifier, images(), 3000, ['cat', 'dog'])):
    assert (answer['index'], answer['class']) == (count, 'cat')
    assert len(read) - count <= 100
  assert len(read) == 3000
  assert classifier.is_closed


def command(*flags):
  return [sys.executable, os.path.join(ROOT, 'cifar10_main.py'), *map(str, flags)]


def test_a_terminal_shows_a_bar(old_job, tmp_path):
  for number in range(120):
    write_image(tmp_path / f'{number:03}.png', number, (20, 40) if number else (32, 32))
  screen, inside = pty.openpty()
  fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 200, 0, 0))
  with open(tmp_path / 'results', 'w+', encoding='utf-8') as results:
    started = subprocess.Popen(
      command('--job-dir', old_job, '--mode', 'predict', '--images', tmp_path / '*.png'),
      stdout=results,
      stderr=inside,
    )
    os.close(inside)
    shown = b''
    with contextlib.suppress(OSError):  # Linux: of a terminal that nobody has open any more.
      while part := os.read(screen, 1 << 16):
        shown += part
    os.close(screen)
    assert started.wait() == 0
    results.seek(0)
    assert len(results.readlines()) == 120
  assert b'predicting' in shown
  assert b'of 120 images' in shown
  assert b'119 images were resized to 32x32 pixels' in shown


@pytest.mark.long
def test_who_reads_only_the_first_line_ends_it_without_a_traceback(old_job, tmp_path):
  path = write_image(tmp_path / 'a.png')
  words = command('--job-dir', old_job, '--mode', 'predict', '--images', *[path] * 2000)
  with subprocess.Popen(
    words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
  ) as started:
    assert json.loads(started.stdout.readline())['file'] == str(path)
    started.stdout.close()
    assert 'Traceback' not in started.stderr.read()
  assert started.returncode == 141


def test_a_split_is_classified_into_a_file(old_job, run_here, data_dir, tmp_path):
  """All formats say the same, and what an evaluation of the split says."""
  split = ['--job-dir', old_job, '--data-dir', data_dir, '--subset', 'eval']
  evaluated = lines(run_here(*split, '--mode', 'evaluate'))[-1]
  for name in ('a.jsonl', 'a.csv', 'a.npz'):
    assert succeeded(run_here(*split, '--mode', 'predict', '--out', tmp_path / name)) == {
      'out': str(tmp_path / name),
      'images': 70,
      'unreadable': 0,
      'accuracy': pytest.approx(evaluated['accuracy'], abs=1e-6),
    }
  said = [json.loads(line) for line in (tmp_path / 'a.jsonl').read_text().splitlines()]
  assert [line['index'] for line in said] == list(range(70))
  arrays = np.load(tmp_path / 'a.npz')
  names = list(arrays['class_names'])
  assert arrays['labels'].tolist() == [number % 10 for number in range(70)]
  assert [names[label] for label in arrays['labels']] == [line['label'] for line in said]
  assert [names[label] for label in arrays['predictions']] == [line['class'] for line in said]
  probabilities = [[line['probabilities'][name] for name in names] for line in said]
  np.testing.assert_allclose(arrays['probabilities'], probabilities, atol=2e-6)
  with open(tmp_path / 'a.csv', encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  assert [row['label'] for row in rows] == [line['label'] for line in said]
  assert [float(row['probability of cat']) for row in rows] == [
    pytest.approx(line['probabilities']['cat'], abs=2e-6) for line in said
  ]


@pytest.mark.parametrize('order', [[GOOD, UNREAD], [UNREAD, GOOD]])
def test_images_that_could_not_be_read_have_their_rows(tmp_path, order):
  predict.write(order, str(tmp_path / 'a.csv'), ['cat', 'dog'])
  header, *rows = (tmp_path / 'a.csv').read_text().splitlines()
  assert header == 'file,class,error,probability of cat,probability of dog'
  row_of = {'a.png': 'a.png,cat,,0.75,0.25', 'b.png': 'b.png,,it is none,,'}
  assert rows == [row_of[each['file']] for each in order]
  predict.write(order, str(tmp_path / 'a.npz'), ['cat', 'dog'])
  arrays = np.load(tmp_path / 'a.npz')
  found = dict(zip(arrays['files'], zip(arrays['predictions'], arrays['probabilities'].tolist())))
  assert found['a.png'] == (0, [0.75, 0.25])
  assert found['b.png'][0] == -1
  assert np.isnan(found['b.png'][1]).all()


def test_sigterm_leaves_no_half_file(old_job, run_here, tmp_path, monkeypatch):
  monkeypatch.setattr(predict, '_write_table', lambda *_: signal.raise_signal(signal.SIGTERM))
  own = signal.signal(signal.SIGTERM, lambda *_: None)
  try:
    flags = ['--images', write_image(tmp_path / 'a.png'), '--out', tmp_path / 'a.csv']
    result = run_here('--job-dir', old_job, '--mode', 'predict', *flags)
  finally:
    signal.signal(signal.SIGTERM, own)
  assert (result.returncode, result.stdout) == (143, '')
  assert result.stderr.splitlines()[-1] == 'ended by SIGTERM'
  assert sorted(os.listdir(tmp_path)) == ['a.png', 'job']


def test_arrays_of_images_are_classified_like_files(old_job, run_here, tmp_path):
  paths = [write_image(tmp_path / f'{number}.png', number) for number in range(3)]
  images = [image_files.read_image(str(path))[0] for path in paths]
  np.save(tmp_path / 'images.npy', np.stack(images))
  np.save(tmp_path / 'floats.npy', np.zeros([2, 32, 32, 3]))
  (tmp_path / 'text.npy').write_text('no array')
  os.mkfifo(tmp_path / 'pipe.npy')
  names = [tmp_path / f'{name}.npy' for name in ('images', 'floats', 'text', 'pipe')]
  predict_with = ['--job-dir', old_job, '--mode', 'predict', '--images']
  expected = lines(run_here(*predict_with, *paths))
  result = run_here(*predict_with, *names)
  said = lines(result)
  assert (result.returncode, len(said)) == (1, 6)
  assert [line['file'] for line in said[:3]] == [f'{names[0]}[{number}]' for number in range(3)]
  assert [line['class'] for line in said[:3]] == [line['class'] for line in expected]
  errors = [line['error'] for line in said[3:]]
  assert 'must be a .npy file of an array uint8 [n, 32, 32, 3] (it is float64 [2' in errors[0]
  assert f'images {names[2]} must be a .npy file' in errors[1]
  assert errors[2] == f'image {names[3]} is no file'


@pytest.mark.parametrize(
  ('flags', 'refusal'),
  [
    (['--images', 'a.png', '--out', 'a.txt'], 'a name must end in one of .jsonl, .csv, .npz'),
    (['--images', 'a.png', '--subset', 'eval'], 'needs --images PATH..., or --subset'),
    (['--subset', 'eval'], '--mode predict needs --data-dir DIR'),
    (['--subset', 'eval', '--data-dir', '/'], '/eval.tfrecords is missing'),
  ],
)
def test_predictions_that_cannot_be_are_refused(old_job, run_here, flags, refusal):
  assert refusal in refused(run_here('--job-dir', old_job, '--mode', 'predict', *flags))
