"""Reading archives of both formats, and refusing bad ones."""

import gzip
import hashlib
import lzma
import os
import pickle
import tarfile
import tracemalloc

import numpy as np
import pytest

from cifar10.core.errors import InputError
from cifar10.data.build import archive, synthetic
from cifar10.data.info import IMAGE_BYTES

LABELS = archive.CIFAR10.labels['fine']


@pytest.fixture(scope='module')
def cifar10(tmp_path_factory):
  """The path and the digests of a synthetic archive: 6 batches of 40."""
  path = str(tmp_path_factory.mktemp('archive') / 'synthetic.tar.gz')
  return path, synthetic.write_synthetic(path, 40, seed=1)


@pytest.fixture(scope='module')
def cifar100(tmp_path_factory):
  """The same of CIFAR-100's format: 5 x 21 = 105 images in `train`, 21 in `test`."""
  path = str(tmp_path_factory.mktemp('archive') / 'synthetic.tar.gz')
  return path, synthetic.write_synthetic(path, 21, seed=1, published=archive.CIFAR100)


def read(made, split, published=archive.CIFAR10, labels='fine'):
  opened = archive.Archive(made[0], published, made[1], labels)
  return opened.read_split(split, len(opened.classes()))


def member(path, name):
  with tarfile.open(path) as tar:
    return pickle.load(tar.extractfile(name), encoding='bytes')


def test_reads_a_synthetic_archive_like_the_published_one(cifar10):
  images, labels = read(cifar10, 'train')
  assert images.shape == (160, IMAGE_BYTES)
  assert np.bincount(labels).tolist() == [16] * 10
  with tarfile.open(cifar10[0]) as tar:
    names = {entry.name for entry in tar}
  published = [*archive.CIFAR10.digests, 'batches.meta']
  assert names == {f'cifar-10-batches-py/{name}' for name in published}
  batch = member(cifar10[0], 'cifar-10-batches-py/test_batch')
  assert set(batch) == {b'batch_label', b'labels', b'data', b'filenames'}


def test_cifar_100_is_one_member_cut_into_training_and_validation_split(cifar100):
  train = member(cifar100[0], 'cifar-100-python/train')
  assert set(train) == {b'batch_label', b'fine_labels', b'coarse_labels', b'data', b'filenames'}
  # A fifth of 105 is 21: the last ones are validated on.
  for split, part in [('train', slice(0, 84)), ('validation', slice(84, 105))]:
    images, labels = read(cifar100, split, archive.CIFAR100)
    np.testing.assert_array_equal(images, train[b'data'][part])
    assert labels.tolist() == train[b'fine_labels'][part]
  test = member(cifar100[0], 'cifar-100-python/test')
  images, labels = read(cifar100, 'eval', archive.CIFAR100)
  np.testing.assert_array_equal(images, test[b'data'])
  assert labels.tolist() == test[b'fine_labels']


def test_cifar_100_has_coarse_labels_too(cifar100):
  fine, coarse = (read(cifar100, 'train', archive.CIFAR100, kind) for kind in ('fine', 'coarse'))
  np.testing.assert_array_equal(fine[0], coarse[0])
  np.testing.assert_array_equal(fine[1] // 5, coarse[1])
  assert coarse[1].max() == 19


@pytest.mark.parametrize(
  ('labels', 'first', 'last'),
  [('fine', 'texture_00', 'texture_99'), ('coarse', 'group_00', 'group_19')],
)
def test_cifar_100s_classes_come_from_the_archive(cifar100, labels, first, last):
  classes = archive.Archive(cifar100[0], archive.CIFAR100, cifar100[1], labels).classes()
  assert (classes[0], classes[-1]) == (first, last)
  assert len(classes) == {'fine': 100, 'coarse': 20}[labels]


@pytest.mark.parametrize('published', [archive.CIFAR10, archive.CIFAR100])
def test_reads_an_unpacked_folder(cifar10, cifar100, published, tmp_path):
  made = cifar10 if published is archive.CIFAR10 else cifar100
  is_known = hasattr(tarfile, 'data_filter')  # Not in the first releases of 3.10 and 3.11.
  with tarfile.open(made[0]) as tar:
    tar.extractall(tmp_path, **({'filter': 'data'} if is_known else {}))
  unpacked = read((str(tmp_path / published.folder), made[1]), 'eval', published)
  packed = read(made, 'eval', published)
  np.testing.assert_array_equal(unpacked[0], packed[0])
  np.testing.assert_array_equal(unpacked[1], packed[1])


def test_refuses_wrong_digests(cifar10):
  wrong = {**cifar10[1], 'test_batch': '0' * 64}
  with pytest.raises(InputError, match=r'test_batch in .* has SHA-256 .* not CIFAR-10'):
    read((cifar10[0], wrong), 'eval')


def test_a_synthetic_cifar_100_is_not_the_published_one(cifar100):
  opened = archive.Archive(cifar100[0], archive.CIFAR100, archive.CIFAR100.digests)
  with pytest.raises(
    InputError, match=r'meta in .* has MD5 .* not 7973b15100ade9c7d40fb424638fde48'
  ):
    opened.classes()
  with pytest.raises(InputError, match=r'train in .* has MD5 .* not CIFAR-100'):
    opened.read_split('validation', 100)


def test_one_data_set_is_not_the_other(cifar10, cifar100):
  with pytest.raises(InputError, match='lacks meta: it is not CIFAR-100; name what it is with'):
    read(cifar10, 'eval', archive.CIFAR100)
  with pytest.raises(InputError, match='lacks test_batch: it is not CIFAR-10'):
    read(cifar100, 'eval')


@pytest.mark.parametrize('kept', [0, 10, 1000, 20_000])
def test_refuses_a_truncated_archive(cifar10, tmp_path, kept):
  with open(cifar10[0], 'rb') as file:
    (tmp_path / 'a.tar.gz').write_bytes(file.read()[:kept])
  with pytest.raises(InputError, match='cannot be read'):
    read((str(tmp_path / 'a.tar.gz'), cifar10[1]), 'eval')


def test_refuses_damaged_xz(cifar10, tmp_path):
  with gzip.open(cifar10[0]) as file:
    content = bytearray(lzma.compress(file.read(), preset=0))
  content[len(content) // 2] ^= 1
  (tmp_path / 'a.tar.xz').write_bytes(content)
  with pytest.raises(InputError, match=r'a\.tar\.xz cannot be read \(Corrupt input data\); name'):
    read((str(tmp_path / 'a.tar.xz'), cifar10[1]), 'eval')


@pytest.mark.parametrize(
  'headers',
  [
    {'GNU.sparse.map': 'a,b'},
    {'GNU.sparse.realsize': 'q'},
    {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0'},
  ],
)
def test_refuses_damaged_headers(tmp_path, headers):
  with tarfile.open(tmp_path / 'a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    entry = tarfile.TarInfo('cifar-10-batches-py/test_batch')
    entry.pax_headers = headers
    tar.addfile(entry)
  with pytest.raises(InputError, match='cannot be read'):
    read((str(tmp_path / 'a.tar'), {}), 'eval')


@pytest.mark.parametrize('kind', [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_refuses_long_headers_before_it_reads_them(tmp_path, kind):
  """64 MiB of zeros, which gzip makes 64 kB."""
  entry = tarfile.TarInfo('name')
  entry.type, entry.size = kind, 1 << 26
  with gzip.open(tmp_path / 'a.tar.gz', 'w') as file:
    file.write(entry.tobuf() + bytes(entry.size + tarfile.RECORDSIZE))
  tracemalloc.start()
  with pytest.raises(InputError, match='it has a header of 67108864 bytes'):
    read((str(tmp_path / 'a.tar.gz'), {}), 'eval')
  assert tracemalloc.get_traced_memory()[1] < 1 << 23
  tracemalloc.stop()


@pytest.mark.parametrize('before', ['./', '././/'])
def test_reads_an_archive_of_the_current_folder(cifar10, tmp_path, before):
  with tarfile.open(cifar10[0]) as old, tarfile.open(tmp_path / 'a', 'w') as new:
    for entry in old:
      file = old.extractfile(entry)
      entry.name = before + entry.name
      new.addfile(entry, file)
  assert read((str(tmp_path / 'a'), cifar10[1]), 'eval')[0].shape == (40, IMAGE_BYTES)


def test_reads_long_headers_of_both_kinds(cifar10, tmp_path):
  for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
    with tarfile.open(cifar10[0]) as old, tarfile.open(tmp_path / 'a', 'w', format=kind) as new:
      new.addfile(tarfile.TarInfo('name' * 1000))
      for entry in old:
        new.addfile(entry, old.extractfile(entry))
    assert read((str(tmp_path / 'a'), cifar10[1]), 'eval')[0].shape == (40, IMAGE_BYTES)


def test_refuses_an_archive_without_the_batches(tmp_path):
  (tmp_path / 'README').write_text('hello')
  with tarfile.open(tmp_path / 'a.tar.gz', 'w:gz') as tar:
    tar.add(tmp_path / 'README', 'elsewhere/test_batch')
  with pytest.raises(InputError, match='lacks test_batch'):
    read((str(tmp_path / 'a.tar.gz'), {}), 'eval')


class Malicious:
  def __reduce__(self):
    return os.system, ('touch pwned',)


def decode(content, name='data_batch_1'):
  return archive.decode_batch(content, name, LABELS, 10, 'CIFAR-10')


@pytest.mark.parametrize(
  ('module', 'name'),
  [
    ('builtins', 'eval'),
    ('builtins', 'getattr'),
    ('numpy', 'load'),
    ('numpy.core.multiarray', 'fromfile'),
    ('_codecs', 'lookup'),
    ('_codecs', 'encode.__call__'),  # From protocol 4 on a name can be a path.
    ('subprocess', 'Popen'),
    ('copyreg', '_reconstructor'),
  ],
)
def test_the_unpickler_admits_what_builds_arrays_and_nothing_else(module, name):
  assert sorted(archive._ADMITTED) == [
    ('_codecs', 'encode'),
    ('numpy', 'dtype'),
    ('numpy', 'ndarray'),
    ('numpy._core.multiarray', '_reconstruct'),
    ('numpy.core.multiarray', '_reconstruct'),
  ]
  # By hand: protocol 4, the two names, and the instruction that looks them up.
  names = b''.join(b'\x8c' + bytes([len(text)]) + text.encode() for text in (module, name))
  with pytest.raises(InputError, match=f'its pickle asks for {module}.{name}'):
    archive.decode_names(b'\x80\x04' + names + b'\x93.', 'meta', LABELS, 'CIFAR-10')


def test_a_pickle_cannot_run_code(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  pickled = pickle.dumps(Malicious(), protocol=2)
  message = r'its pickle asks for (posix|os)\.system'
  with pytest.raises(InputError, match=f'test_batch: {message}'):
    decode(pickled, 'test_batch')
  with pytest.raises(InputError, match=f'meta: {message}'):
    archive.decode_names(pickled, 'meta', LABELS, 'CIFAR-10')
  assert os.listdir(tmp_path) == []


def batch(images=2, labels=(0, 9), dtype=np.uint8):
  return {b'data': np.zeros([images, IMAGE_BYTES], dtype), b'labels': list(labels)}


@pytest.mark.parametrize(
  ('bad', 'message'),
  [
    (batch(labels=(0, 10)), 'has a label 10, not 0 to 9'),
    (batch(labels=(-1, 0)), 'has a label -1'),
    (batch(labels=(0.5, 0)), 'no list of whole numbers'),
    (batch(labels=('cat', 'dog')), 'no list of whole numbers'),
    (batch(labels=([1], [2])), 'no list of whole numbers'),
    (batch(images=3), 'not uint8'),
    (batch(dtype=np.float32), 'not uint8'),
    ({b'data': 5, b'labels': [1]}, 'not uint8'),
    ({b'labels': [1]}, 'is not a CIFAR-10 batch'),
    ([], 'is not a CIFAR-10 batch'),
  ],
)
def test_refuses_what_is_no_batch(bad, message):
  with pytest.raises(InputError, match=message):
    decode(pickle.dumps(bad, protocol=2))


@pytest.mark.parametrize(
  ('bad', 'message'),
  [
    ([], 'has no class names'),
    ({b'label_names': [b'\xff']}, 'has no class names'),
    ({b'label_names': [b'cat', 3]}, 'has no class names'),
    ({b'label_names': [b'cat']}, '2 names or more'),
    ({b'label_names': [b'cat', b'cat']}, "the class 'cat' more than once"),
  ],
)
def test_refuses_what_are_no_names(bad, message):
  with pytest.raises(InputError, match=message):
    archive.decode_names(pickle.dumps(bad, protocol=2), 'meta', LABELS, 'CIFAR-10')


def test_reads_a_python_2_batch():
  """Bytes as Python 2 and NumPy 1 wrote them: byte strings by the opcode U, the old module."""
  data = np.arange(IMAGE_BYTES).astype(np.uint8)
  rebuild = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
  dtype = (
    b'cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb'
  )
  raw = b'T' + len(data).to_bytes(4, 'little') + data.tobytes()
  state = b'(K\x01K\x01M\x00\x0c\x86' + dtype + b'\x89' + raw + b'tb'
  content = b'\x80\x02}(U\x04data' + rebuild + state + b'U\x06labels]K\x03au.'
  images, labels = decode(content)
  np.testing.assert_array_equal(images, data[np.newaxis])
  assert labels.tolist() == [3]


def test_reads_python_2_names():
  content = b'\x80\x02}U\x10fine_label_names](U\x05appleU\raquarium_fishes.'
  names = archive.decode_names(content, 'meta', archive.CIFAR100.labels['fine'], 'CIFAR-100')
  assert names == ('apple', 'aquarium_fish')


@pytest.mark.skipif(not os.environ.get('CIFAR10_ARCHIVE'), reason='CIFAR10_ARCHIVE is not set')
def test_the_real_archive():
  published = archive.CIFAR10
  opened = archive.Archive(os.environ['CIFAR10_ARCHIVE'], published, published.digests)
  images, labels = opened.read_split('eval', 10)
  assert images.shape == (10_000, IMAGE_BYTES)
  assert np.bincount(labels).tolist() == [1000] * 10
  assert labels[:4].tolist() == [3, 8, 8, 0]  # A cat, two ships and an airplane come first.
  assert (
    hashlib.sha256(images[0].tobytes()).digest() != hashlib.sha256(images[1].tobytes()).digest()
  )
