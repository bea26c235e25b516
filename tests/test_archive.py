"""Fetching from a real server that misbehaves, refusing bad archives, and synthetic images."""

import functools
import hashlib
import http.server
import os
import pickle
import tarfile
import threading

import numpy as np
import pytest

from cifar10 import archive, records
from cifar10.errors import InputError

CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(http.server.BaseHTTPRequestHandler):
  """Serves CONTENT as `server.behaviour` says; remembers the ranges it was asked for."""

  def do_GET(self):
    asked = self.headers.get('Range')
    self.server.asked.append(asked)
    if self.server.behaviour == 'missing':
      self.send_error(404)
      return
    start = 0
    if asked and self.server.behaviour != 'no range':
      start = int(asked[len('bytes=') : -1])
      self.send_response(206)
      self.send_header('Content-Range', f'bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}')
    else:
      self.send_response(200)
    self.send_header('Content-Length', str(len(CONTENT) - start))
    self.end_headers()
    drops = self.server.drops > 0
    self.server.drops -= 1
    self.wfile.write(CONTENT[start : start + 100_000] if drops else CONTENT[start:])

  def log_message(self, *arguments):
    pass


@pytest.fixture
def server():
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server) as server:
    server.behaviour, server.drops, server.asked = 'range', 0, []
    server.url = f'http://127.0.0.1:{server.server_port}/cifar.tar.gz'
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def fetch(url, path):
  archive.download(url, str(path), first_pause=0.01)


def test_downloads(server, tmp_path):
  fetch(server.url, tmp_path / 'a')
  assert (tmp_path / 'a').read_bytes() == CONTENT
  assert os.listdir(tmp_path) == ['a']


def test_goes_on_after_dropped_connections(server, tmp_path):
  server.drops = 2
  fetch(server.url, tmp_path / 'a')
  assert (tmp_path / 'a').read_bytes() == CONTENT
  assert server.asked == [None, 'bytes=100000-', 'bytes=200000-']


def test_goes_on_with_an_earlier_runs_part(server, tmp_path):
  (tmp_path / 'a.part').write_bytes(CONTENT[:1234])
  fetch(server.url, tmp_path / 'a')
  assert (tmp_path / 'a').read_bytes() == CONTENT
  assert server.asked == ['bytes=1234-']


def test_starts_again_where_the_server_knows_no_ranges(server, tmp_path):
  server.behaviour, server.drops = 'no range', 1
  fetch(server.url, tmp_path / 'a')
  assert (tmp_path / 'a').read_bytes() == CONTENT


def test_a_missing_page_is_not_asked_for_again(server, tmp_path):
  server.behaviour = 'missing'
  with pytest.raises(InputError, match=r'404.*--archive FILE'):
    fetch(server.url, tmp_path / 'a')
  assert len(server.asked) == 1


def test_gives_up_after_five_attempts_and_keeps_the_part(server, tmp_path):
  server.behaviour, server.drops = 'no range', 99
  with pytest.raises(InputError, match='ended after 100000 of 300000 bytes'):
    fetch(server.url, tmp_path / 'a')
  assert len(server.asked) == 5
  assert os.listdir(tmp_path) == ['a.part']


@pytest.fixture(scope='module')
def synthetic(tmp_path_factory):
  path = str(tmp_path_factory.mktemp('archive') / 'synthetic.tar.gz')
  return path, archive.write_synthetic(path, 40, seed=1)


def test_reads_a_synthetic_archive_like_the_published_one(synthetic):
  images, labels = archive.read_subset(synthetic[0], 'train', synthetic[1])
  assert images.shape == (160, records.IMAGE_BYTES)
  assert np.bincount(labels).tolist() == [16] * 10
  with tarfile.open(synthetic[0]) as tar:
    names = {member.name for member in tar}
    batch = pickle.load(tar.extractfile('cifar-10-batches-py/test_batch'), encoding='bytes')
  published = [*archive.PUBLISHED_SHA256, 'batches.meta']
  assert names == {f'cifar-10-batches-py/{name}' for name in published}
  assert set(batch) == {b'batch_label', b'labels', b'data', b'filenames'}


def test_reads_an_unpacked_folder(synthetic, tmp_path):
  with tarfile.open(synthetic[0]) as tar:
    tar.extractall(tmp_path, filter='data')
  unpacked = archive.read_subset(str(tmp_path / archive.FOLDER_NAME), 'eval', synthetic[1])
  packed = archive.read_subset(synthetic[0], 'eval', synthetic[1])
  np.testing.assert_array_equal(unpacked[0], packed[0])
  np.testing.assert_array_equal(unpacked[1], packed[1])


def test_a_seed_fixes_every_byte(synthetic, tmp_path):
  again, other = str(tmp_path / 'again.tar.gz'), str(tmp_path / 'other.tar.gz')
  assert archive.write_synthetic(again, 40, seed=1) == synthetic[1]
  archive.write_synthetic(other, 40, seed=2)

  def read(path):
    with open(path, 'rb') as file:
      return file.read()

  assert read(again) == read(synthetic[0])
  assert read(other) != read(synthetic[0])


def test_a_linear_model_does_not_solve_the_synthetic_images():
  rng = np.random.default_rng(0)
  labels = np.arange(3000) % 10
  pixels = archive.synthetic_images(labels, rng) / 128 - 1
  fitted, tested = slice(0, 2400), slice(2400, 3000)
  x, y = pixels[fitted], np.eye(10)[labels[fitted]]
  # Ridge in its dual form: fewer images than pixels.
  weights = x.T @ np.linalg.solve(x @ x.T + 1000 * np.eye(len(x)), y)
  accuracy = (np.argmax(pixels[tested] @ weights, 1) == labels[tested]).mean()
  # 0.43 here, where one texture in any phase still correlates with itself; ResNet-8 reaches 0.99.
  assert accuracy < 0.5


def test_refuses_wrong_digests(synthetic):
  wrong = {**synthetic[1], 'test_batch': '0' * 64}
  with pytest.raises(InputError, match=r'test_batch in .* has SHA-256'):
    archive.read_subset(synthetic[0], 'eval', wrong)


@pytest.mark.parametrize('kept', [0, 10, 1000, 20_000])
def test_refuses_a_truncated_archive(synthetic, tmp_path, kept):
  with open(synthetic[0], 'rb') as file:
    (tmp_path / 'a.tar.gz').write_bytes(file.read()[:kept])
  with pytest.raises(InputError, match='cannot be read'):
    archive.read_subset(str(tmp_path / 'a.tar.gz'), 'eval', synthetic[1])


def test_refuses_an_archive_without_the_batches(tmp_path):
  (tmp_path / 'README').write_text('hello')
  with tarfile.open(tmp_path / 'a.tar.gz', 'w:gz') as tar:
    tar.add(tmp_path / 'README', 'elsewhere/test_batch')
  with pytest.raises(InputError, match='lacks test_batch'):
    archive.read_subset(str(tmp_path / 'a.tar.gz'), 'eval', {})


class Malicious:
  def __reduce__(self):
    return os.system, ('touch pwned',)


def test_a_pickle_cannot_run_code(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(InputError, match=r'test_batch: its pickle asks for (posix|os)\.system'):
    archive.decode_batch(pickle.dumps(Malicious(), protocol=2), 'test_batch')
  assert os.listdir(tmp_path) == []


def batch(images=2, labels=(0, 9), dtype=np.uint8):
  return {b'data': np.zeros([images, records.IMAGE_BYTES], dtype), b'labels': list(labels)}


@pytest.mark.parametrize(
  ('bad', 'message'),
  [
    (batch(labels=(0, 10)), 'has a label 10'),
    (batch(labels=(-1, 0)), 'has a label -1'),
    (batch(images=3), 'not uint8'),
    (batch(dtype=np.float32), 'not uint8'),
    ({b'data': 5, b'labels': [1]}, 'not uint8'),
    ({b'labels': [1]}, 'is not a CIFAR-10 batch'),
    ([], 'is not a CIFAR-10 batch'),
  ],
)
def test_refuses_what_is_no_batch(bad, message):
  with pytest.raises(InputError, match=message):
    archive.decode_batch(pickle.dumps(bad, protocol=2), 'data_batch_1')


def test_reads_a_python_2_batch():
  """Bytes as Python 2 and NumPy 1 wrote them: byte strings by the opcode U, the old module."""
  data = np.arange(records.IMAGE_BYTES).astype(np.uint8)
  rebuild = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
  dtype = (
    b'cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb'
  )
  raw = b'T' + len(data).to_bytes(4, 'little') + data.tobytes()
  state = b'(K\x01K\x01M\x00\x0c\x86' + dtype + b'\x89' + raw + b'tb'
  content = b'\x80\x02}(U\x04data' + rebuild + state + b'U\x06labels]K\x03au.'
  images, labels = archive.decode_batch(content, 'data_batch_1')
  np.testing.assert_array_equal(images, data[np.newaxis])
  assert labels.tolist() == [3]


@pytest.mark.skipif('CIFAR10_ARCHIVE' not in os.environ, reason='CIFAR10_ARCHIVE is not set')
def test_the_real_archive():
  read = functools.partial(archive.read_subset, os.environ['CIFAR10_ARCHIVE'])
  images, labels = read('eval', archive.PUBLISHED_SHA256)
  assert images.shape == (10_000, records.IMAGE_BYTES)
  assert np.bincount(labels).tolist() == [1000] * 10
  assert labels[:4].tolist() == [3, 8, 8, 0]  # A cat, two ships and an airplane come first.
  assert hashlib.sha256(images[0].tobytes()).digest() != hashlib.sha256(images[1]).digest()
