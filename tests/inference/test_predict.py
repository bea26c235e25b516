"""Predictions for files, folders and patterns: a stream, in which a bad file stops no good one."""

import contextlib
import csv
import errno
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
from outcome import refused

from cifar10.core.errors import InputError
from cifar10.data import image_files
from cifar10.inference import predict
from cifar10.inference.predict import each_file

SUB = ['photos/sub/c.png']
BAD = [b'', b'no image', b'\x89PNG\r\n\x1a\n' + bytes(50), b'\xff\xd8\xff\xe0' + bytes(50)]


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
  found = each_file([str(tmp_path / name) for name in given])
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
    (['photos/[ab].png'], ['photos/a.png', 'photos/b.png']),
    (['photos/[x].png'], ['photos/[x].png']),  # It is there.
    (['photos/**/c.png'], ['photos/sub/c.png']),
    (['photos/s*'], ['photos/sub/c.png']),  # A folder.
    (['photos/**'], ['photos/[x].png', 'photos/a.png', 'photos/b.png', 'photos/sub/c.png']),
    (['photos/*'], ['photos/[x].png', 'photos/a.png', 'photos/b.png', 'photos/empty', *SUB]),
    (['photos/*.jpg', 'photos/empty', 'gone.png'], ['photos/*.jpg', 'photos/empty', 'gone.png']),
    (['photos/a.png', 'photos/a.png'], ['photos/a.png', 'photos/a.png']),
  ],
)
def test_which_files_are_meant(photos, given, found):
  assert names(photos, *given) == found


def test_folders_behind_links_count_and_a_loop_ends(photos, monkeypatch):
  write_image(photos / 'elsewhere' / 'd.png')
  (photos / 'photos' / 'sub' / 'link').symlink_to(photos / 'elsewhere')
  (photos / 'elsewhere' / 'back').symlink_to(photos / 'photos')
  for name in ('photos', 'photos/sub', 'photos/**'):
    assert names(photos, name)[-2:] == [*SUB, 'photos/sub/link/d.png']
  monkeypatch.chdir(photos / 'photos')
  (photos / 'photos' / 'sub' / 'out').symlink_to(photos)
  assert list(each_file(['sub'])) == ['sub/c.png', 'sub/link/d.png']
  (photos / 'elsewhere' / 'again').symlink_to('.')
  assert names(photos, 'photos')[-2:] == [*SUB, 'photos/sub/link/d.png']


def test_a_folder_that_may_not_be_listed_is_named(photos, monkeypatch):
  scandir = os.scandir

  def refusing(path):
    if os.path.basename(path) == 'sub':
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return scandir(path)

  monkeypatch.setattr(os, 'scandir', refusing)
  assert names(photos, 'photos')[-2:] == ['photos/b.png', 'photos/sub']
  assert names(photos, 'photos/sub') == ['photos/sub']


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
  assert errors['n*thing'].endswith('n*thing does not exist')
  assert errors['pipe.png'].endswith('pipe.png is no file')
  assert errors['link.png'].endswith('link.png is no file')
  assert all('cannot be read as PNG or JPEG' in errors[f'bad{n}.png'] for n in range(4))
  assert result.returncode == 1
  assert result.stderr.splitlines()[-1] == (
    'error: 8 of 12 images could not be read; their lines of the result say why'
  )
  assert 'Traceback' not in result.stderr


def test_a_single_bad_one_is_no_mistake_of_the_command(old_job, run_here, tmp_path):
  (tmp_path / 'text.png').write_text('no image')
  result = run_here('--job-dir', old_job, '--mode', 'predict', '--images', tmp_path / 'text.png')
  assert result.returncode == 1
  [line] = lines(result)
  assert line == {
    'file': f'{tmp_path}/text.png',
    'error': f'image {tmp_path}/text.png cannot be read as PNG or JPEG; convert it',
  }


def test_an_image_that_the_storage_does_not_give_has_an_error_too(tmp_path, monkeypatch):
  def fail(path):
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)

  monkeypatch.setattr(image_files, '_content', fail)
  path = str(write_image(tmp_path / 'a.png'))
  [read] = predict.named_images([path]).read()
  assert read.error == (
    f'image {path} cannot be read (Input/output error); mend that, and run again'
  )


@pytest.mark.slow
def test_images_do_not_pile_up(tmp_path, monkeypatch):
  """Of 3,000 images no more than a few batches are read before the first is answered."""
  read = []

  original = image_files.read_image
  monkeypatch.setattr(
    image_files, 'read_image', lambda path: (read.append(path), original(path))[1]
  )
  path = str(write_image(tmp_path / 'a.png'))

  class Classifier:
    """Says 0 of every image: what is measured is the stream."""

    def predict(self, input_fn, checkpoint_path):
      batches = tf.compat.v1.data.make_one_shot_iterator
      with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        batch = batches(input_fn()).get_next()
        while True:
          try:
            images = session.run(batch)['images']
          except tf.errors.OutOfRangeError:
            return
          for _ in images:
            yield {'classes': 0, 'probabilities': [1.0, 0.0]}

  most = 0
  for count, answer in enumerate(
    predict.predict(Classifier(), predict.named_images([path] * 3000), 'checkpoint', ['cat', 'dog'])
  ):
    assert answer['class'] == 'cat'
    most = max(most, len(read) - count)
  assert len(read) == 3000
  assert most <= 400


def test_the_log_names_twenty_resized_images(old_job, run_here, tmp_path):
  folder = tmp_path / 'images'
  for number in range(25):
    write_image(folder / f'{number:02}.png', number, (20, 40))
  result = run_here('--job-dir', old_job, '--mode', 'predict', '--images', folder)
  assert result.returncode == 0
  assert len(lines(result)) == 25
  assert result.stderr.count('resized from 40x20 to 32x32') == 20
  assert result.stderr.count('more images are resized') == 1


def command(*flags):
  return [sys.executable, os.path.join(ROOT, 'cifar10_main.py'), *map(str, flags)]


def test_a_bar_on_a_terminal_and_none_in_a_file(old_job, tmp_path):
  folder = tmp_path / 'images'
  for number in range(120):
    write_image(folder / f'{number:03}.png', number)
  screen, inside = pty.openpty()
  fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 120, 0, 0))
  with open(tmp_path / 'results', 'w+', encoding='utf-8') as results:
    started = subprocess.Popen(
      command('--job-dir', old_job, '--mode', 'predict', '--images', folder),
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


@pytest.mark.long
def test_who_reads_only_the_first_line_ends_it_without_a_traceback(old_job, tmp_path):
  path = write_image(tmp_path / 'a.png')
  started = subprocess.Popen(
    command('--job-dir', old_job, '--mode', 'predict', '--images', *[path] * 2000),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  with started:
    assert json.loads(started.stdout.readline())['file'] == str(path)
    started.stdout.close()
    said = started.stderr.read()
  assert 'Traceback' not in said
  assert started.returncode == 141


def test_a_split_is_classified_into_a_file(old_job, run_here, data_dir, tmp_path):
  """All formats say the same, and what an evaluation of the split says."""
  split = ['--job-dir', old_job, '--data-dir', data_dir, '--subset', 'eval']
  evaluated = lines(run_here(*split, '--mode', 'evaluate'))[-1]
  for name in ('a.jsonl', 'a.csv', 'a.npz'):
    [result] = lines(run_here(*split, '--mode', 'predict', '--out', tmp_path / name))
    assert result == {
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


def test_a_split_without_its_file_is_one_line(old_job, run_here, tmp_path):
  result = run_here(
    *('--job-dir', old_job, '--data-dir', tmp_path, '--mode', 'predict', '--subset', 'eval'),
    *('--out', tmp_path / 'a.csv'),
  )
  assert f'error: {tmp_path}/eval.tfrecords is missing' in refused(result)
  assert not (tmp_path / 'a.csv').exists()


def test_a_probability_that_is_no_number_is_null_in_json_lines(tmp_path):
  result = {'file': 'a.png', 'class': 'cat', 'probabilities': {'cat': float('nan'), 'dog': 0.5}}
  [summary] = predict.written(iter([result]), str(tmp_path / 'a.jsonl'), ['cat', 'dog'])
  assert summary == {'out': str(tmp_path / 'a.jsonl'), 'images': 1, 'unreadable': 0}
  assert json.loads((tmp_path / 'a.jsonl').read_text())['probabilities'] == {
    'cat': None,
    'dog': 0.5,
  }


def test_arrays_of_no_image_have_their_types(tmp_path):
  path = tmp_path / 'a.npz'
  [summary] = predict.written(iter([]), str(path), ['cat', 'dog'])
  assert summary['images'] == 0
  arrays = np.load(path)
  assert (arrays['predictions'].dtype, arrays['predictions'].shape) == (np.int64, (0,))
  assert (arrays['probabilities'].dtype, arrays['probabilities'].shape) == (np.float32, (0, 2))


@pytest.mark.parametrize('order', [[0, 1], [1, 0], []])
def test_the_columns_of_a_table_do_not_depend_on_its_rows(tmp_path, order):
  good = {'file': 'a.png', 'class': 'cat', 'probabilities': {'cat': 0.75, 'dog': 0.25}}
  results = [good, {'file': 'b.png', 'error': 'it is none'}]
  path = tmp_path / 'a.csv'
  given = (results[each] for each in order)
  [summary] = predict.written(given, str(path), ['cat', 'dog'])
  assert (summary['images'], summary['unreadable']) == (len(order), order.count(1))
  header, *rows = path.read_text().splitlines()
  assert header == 'file,class,error,probability of cat,probability of dog'
  expected = ['a.png,cat,,0.75,0.25', 'b.png,,it is none,,']
  assert rows == [expected[each] for each in order]


def test_a_file_that_cannot_be_opened_is_a_mistake_of_the_command(tmp_path):
  path = str(tmp_path / 'gone' / 'a.csv')
  with pytest.raises(InputError) as refused:
    list(predict.written(iter([]), path, ['cat']))
  assert str(refused.value) == (
    f'--out {path} cannot be written (No such file or directory); name another'
  )


def test_sigterm_leaves_no_half_file(old_job, run_here, tmp_path, monkeypatch):
  monkeypatch.setattr(predict, '_write_lines', lambda *_: signal.raise_signal(signal.SIGTERM))
  own = signal.signal(signal.SIGTERM, signal.SIG_IGN)
  try:
    flags = ['--images', write_image(tmp_path / 'a.png'), '--out', tmp_path / 'a.jsonl']
    result = run_here('--job-dir', old_job, '--mode', 'predict', *flags)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
  finally:
    signal.signal(signal.SIGTERM, own)
  assert (result.returncode, result.stdout) == (143, '')
  assert result.stderr.splitlines()[-1] == 'ended by SIGTERM'
  assert 'Traceback' not in result.stderr
  assert sorted(os.listdir(tmp_path)) == ['a.png', 'job']


def test_arrays_of_images_are_classified_like_files(old_job, run_here, tmp_path):
  paths = [write_image(tmp_path / f'{number}.png', number) for number in range(3)]
  images = [image_files.read_image(str(path))[0] for path in paths]
  np.save(tmp_path / 'images.npy', np.stack(images))
  np.save(tmp_path / 'floats.npy', np.zeros([2, 32, 32, 3]))
  (tmp_path / 'text.npy').write_text('no array')
  assert predict.named_images([str(tmp_path / 'images.npy'), str(paths[0])]).num_images() == 4
  with open(tmp_path / 'several.npy', 'wb') as file:
    np.savez(file, images=np.stack(images))
  os.mkfifo(tmp_path / 'pipe.npy')
  names = [tmp_path / f'{name}.npy' for name in ('images', 'floats', 'text', 'pipe', 'several')]
  predict_with = ['--job-dir', old_job, '--mode', 'predict', '--images']
  expected = lines(run_here(*predict_with, *paths))
  result = run_here(*predict_with, *names, '--out', tmp_path / 'a.jsonl')
  assert (result.returncode, lines(result)[-1]['images']) == (1, 7)
  said = [json.loads(line) for line in (tmp_path / 'a.jsonl').read_text().splitlines()]
  assert [line['file'] for line in said[:3]] == [f'{names[0]}[{number}]' for number in range(3)]
  assert [line['class'] for line in said[:3]] == [line['class'] for line in expected]
  errors = [line['error'] for line in said[3:]]
  assert 'must be a .npy file of an array uint8 [n, 32, 32, 3] (it is float64 [2' in errors[0]
  assert f'images {names[2]} must be a .npy file' in errors[1]
  assert errors[2] == f'image {names[3]} is no file'
  assert f'images {names[4]} must be a .npy file' in errors[3]


@pytest.mark.parametrize(
  ('flags', 'refusal'),
  [
    (['--images', 'a.png', '--out', 'a.txt'], 'a name must end in one of .jsonl, .csv, .npz'),
    (['--images', 'a.png', '--out', 'gone/a.csv'], 'there is no folder gone; make it'),
    (['--images', 'a.png', '--subset', 'eval'], 'needs --images PATH..., or --subset'),
    (['--subset', 'eval'], '--mode predict needs --data-dir DIR'),
  ],
)
def test_predictions_that_cannot_be_are_refused(old_job, run_here, flags, refusal):
  assert refusal in refused(run_here('--job-dir', old_job, '--mode', 'predict', *flags))
