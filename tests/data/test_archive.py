"""Unpacking and reading archives of both formats, refusing bad ones, and fetching them."""

import dataclasses
import errno
import hashlib
import http.server
import os
import pickle
import shutil
import tarfile
import threading
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from cifar10.core.errors import InputError
from cifar10.data.build import archive, synthetic
from cifar10.data.build.archive import CIFAR10, CIFAR100, download_and_extract, read_batches
from cifar10.data.manifest import IMAGE_BYTES, DatasetInfo


class Made(NamedTuple):
  batches: str  # A folder of synthetic batches.
  archive: str  # The same, packed as the published archive is.
  published: archive.Published  # With the digests of these batches.


def make(folder, published, images):
  batches = synthetic.write_synthetic(str(folder), images, 1, published)
  digests = {}
  with tarfile.open(folder / 'made.tar.gz', 'w:gz') as tar:
    for name in sorted(os.listdir(batches)):
      tar.add(f'{batches}/{name}', f'{published.folder}/{name}')
      with open(f'{batches}/{name}', 'rb') as file:
        digests[name] = hashlib.new(published.algorithm, file.read()).hexdigest()
  published = dataclasses.replace(published, digests=digests)
  return Made(batches, str(folder / 'made.tar.gz'), published)


@pytest.fixture(scope='module')
def cifar10(tmp_path_factory):
  """6 batches of 40."""
  return make(tmp_path_factory.mktemp('cifar10'), CIFAR10, 40)


@pytest.fixture(scope='module')
def cifar100(tmp_path_factory):
  """5 x 21 = 105 images in `train`, 21 in `test`."""
  return make(tmp_path_factory.mktemp('cifar100'), CIFAR100, 21)


def unpickled(path):
  with open(path, 'rb') as file:
    return pickle.load(file, encoding='bytes')


def test_an_archive_in_the_data_dir_is_unpacked_and_its_folder_will_do(cifar10, tmp_path):
  shutil.copy(cifar10.archive, tmp_path / 'cifar-10-python.tar.gz')
  for is_packed in (True, False):
    folder = download_and_extract(str(tmp_path), published=cifar10.published)
    assert folder == f'{tmp_path}/cifar-10-batches-py'
    examples = list(read_batches([f'{folder}/data_batch_{number}' for number in (1, 2)]))
    first, second = (unpickled(f'{cifar10.batches}/data_batch_{number}') for number in (1, 2))
    assert [label for _, label in examples] == first[b'labels'] + second[b'labels']
    images = np.concatenate([first[b'data'], second[b'data']])
    np.testing.assert_array_equal([image for image, _ in examples], images)
    if is_packed:
      os.remove(tmp_path / 'cifar-10-python.tar.gz')
  another = f'{tmp_path}/none'
  assert download_and_extract(another, published=cifar10.published, archive=folder) == folder
  assert not os.path.exists(another)


def test_a_batch_of_cifar_100_is_cut_into_training_and_validation_split(cifar100):
  train = unpickled(f'{cifar100.batches}/train')
  fine, coarse = CIFAR100.labels.values()
  for labels in (fine, coarse):
    splits = archive.opened(cifar100.batches, CIFAR100, labels).splits
    # A fifth of 105 is 21: the last ones are validated on.
    for split, there in [('train', slice(84)), ('validation', slice(84, 105))]:
      images, numbers = zip(*splits[split])
      np.testing.assert_array_equal(images, train[b'data'][there])
      assert [*numbers] == train[labels.key][there]
    assert len([*splits['eval']]) == 21
  assert np.array_equal(np.array(train[fine.key]) // 5, train[coarse.key])


def test_what_is_not_the_published_archive_is_refused(cifar10, cifar100, tmp_path):
  for made, published, message in [
    (cifar10, CIFAR10, r'data_batch_1 in .* has sha256 .* not 54636561'),
    (cifar100, CIFAR100, r'meta in .* has md5 .*, not 7973b15100ade9c7d40fb424638fde48'),
    (cifar10, CIFAR100, 'lacks meta, test, train: it is not cifar100'),
  ]:
    with pytest.raises(InputError, match=message):
      download_and_extract(str(tmp_path / 'data'), published=published, archive=made.archive)
  assert not os.path.exists(tmp_path / 'data')


def test_a_damaged_or_truncated_archive_is_refused(cifar10, tmp_path):
  path = tmp_path / 'a.tar.gz'
  with open(cifar10.archive, 'rb') as file:
    content = file.read()
  middle = len(content) // 2
  damaged = content[:middle] + bytes(100) + content[middle + 100 :]
  for bad in (damaged, content[:0], content[:10], content[:1000], content[:middle]):
    path.write_bytes(bad)
    with pytest.raises(InputError, match=r'cannot be read .* another --archive|has sha256|lacks'):
      download_and_extract(str(tmp_path), published=cifar10.published, archive=str(path))


@pytest.mark.parametrize('place', ['posix.system', 'numpy.load', '_codecs.encode.__call__'])
def test_the_unpickler_admits_what_builds_arrays_and_nothing_else(tmp_path, place):
  # By hand: protocol 4 (where a name can be a path), the two names, and the instruction that looks
  # them up.
  names = b''.join(b'\x8c' + bytes([len(text)]) + text.encode() for text in place.split('.', 1))
  (tmp_path / 'batch').write_bytes(b'\x80\x04' + names + b'\x93.')
  with pytest.raises(InputError, match=f'it asks for {place}, which no CIFAR batch needs'):
    list(read_batches([f'{tmp_path}/batch']))


def test_what_is_no_batch_is_refused(cifar100, tmp_path):
  images = np.zeros([2, IMAGE_BYTES], np.uint8)
  labels = [[1], [1] * 3, [0, 10], [-1, 0], [0.5, 0], ['a', 'b']]
  others = [(images.astype(np.float32), [0, 1]), (images[:, 1:], [0, 1]), (b'', [])]
  contents = [{b'data': images, b'labels': each} for each in labels]
  contents += [{b'data': data, b'labels': each} for data, each in others]
  for content in ([], *contents, archive._unpickled(f'{cifar100.batches}/train')):
    (tmp_path / 'batch').write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match='is no batch of cifar10'):
      list(read_batches([f'{tmp_path}/batch']))


def test_reads_what_python_2_wrote(tmp_path):
  """Bytes as Python 2 and NumPy 1 wrote them: byte strings by the opcode U, the old module."""
  data = np.arange(5 * IMAGE_BYTES).astype(np.uint8)
  rebuild = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
  dtype = (
    b'cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb'
  )
  raw = b'T' + len(data).to_bytes(4, 'little') + data.tobytes()
  state = b'(K\x01K\x05M\x00\x0c\x86' + dtype + b'\x89' + raw + b'tb'
  labels = b'U\x0bfine_labels](' + b'K\x03' * 5 + b'eu.'
  (tmp_path / 'train').write_bytes(b'\x80\x02}(U\x04data' + rebuild + state + labels)
  (tmp_path / 'meta').write_bytes(b'\x80\x02}U\x10fine_label_names](U\x05appleU\raquarium_fishes.')
  opened = archive.opened(str(tmp_path), CIFAR100, CIFAR100.labels['fine'])
  [(image, label)] = opened.splits['validation']
  np.testing.assert_array_equal(image, data[-IMAGE_BYTES:])
  assert label == 3
  assert opened.data.classes == ('apple', 'aquarium_fish')


def test_means_and_deviations_by_hand():
  def image(red, green, blue):
    return np.repeat(np.array([red, green, blue], np.uint8), 1024)

  # Red 0 and 1: mean 0.5, deviation 0.5. Green 0.2 and 0.4: mean 0.3, deviation 0.1. Blue has one
  # value: its deviation is 0, for which one level of 255 stands, 0.003922.
  found = archive.measured('a', ['b', 'c'], [(image(0, 51, 255), 0), (image(255, 102, 255), 1)])
  assert found == DatasetInfo('a', ('b', 'c'), (0.5, 0.3, 1.0), (0.5, 0.1, 0.003922))


CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(http.server.BaseHTTPRequestHandler):
  """Serves CONTENT as `server.behaviour` says; remembers the ranges it was asked for."""

  def do_GET(self):
    asked = self.headers.get('Range')
    self.server.asked.append(asked)
    if self.server.behaviour == 'missing' or (asked and self.server.behaviour == 'too long'):
      return self.send_error(404 if self.server.behaviour == 'missing' else 416)
    is_part = asked and self.server.behaviour != 'no range'
    start = int(asked[len('bytes=') : -1]) if is_part else 0
    self.send_response(206 if is_part else 200)
    self.send_header('Content-Length', str(len(CONTENT) - start))
    self.end_headers()
    drops = self.server.drops > 0
    self.server.drops -= 1
    self.wfile.write(CONTENT[start : start + 100_000] if drops else CONTENT[start:])


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


def test_a_dropped_connection_is_one_line_and_the_next_run_goes_on(server, tmp_path):
  server.drops = 2
  for there in (100_000, 200_000):
    with pytest.raises(InputError, match=f'ended after {there} of 300000 bytes.*run again'):
      archive.download(server.url, f'{tmp_path}/a')
    assert os.listdir(tmp_path) == ['a.part']
  archive.download(server.url, f'{tmp_path}/a')
  assert (tmp_path / 'a').read_bytes() == CONTENT
  assert os.listdir(tmp_path) == ['a']
  assert server.asked == [None, 'bytes=100000-', 'bytes=200000-']


@pytest.mark.parametrize(
  ('behaviour', 'said'), [('no range', None), ('too long', '416.*run again'), ('missing', '404')]
)
def test_another_server_or_file_is_downloaded_from_the_start(server, tmp_path, behaviour, said):
  server.behaviour = behaviour
  (tmp_path / 'a.part').write_bytes(CONTENT + b'x')
  if said:  # The part of another file goes.
    with pytest.raises(InputError, match=f'{said}.*--archive FILE'):
      archive.download(server.url, f'{tmp_path}/a')
  if behaviour != 'missing':
    archive.download(server.url, f'{tmp_path}/a')
    assert (tmp_path / 'a').read_bytes() == CONTENT


def test_a_full_disk_is_not_the_network_s_fault(server, tmp_path, monkeypatch):
  full = mock.Mock(side_effect=OSError(errno.ENOSPC, 'No space left on device'))
  monkeypatch.setattr(shutil, 'copyfileobj', full)
  with pytest.raises(OSError, match='No space left'):
    archive.download(server.url, f'{tmp_path}/a')
