"""The published archive: fetched, verified and read; and a synthetic one of the same format.

A batch is a Python 2 pickle of a dict with byte-string keys `batch_label`, `labels`, `data` (uint8
[10000, 3072]: planes R, G, B, rows of 32) and `filenames`.
"""

import gzip
import hashlib
import http.client
import io
import logging
import os
import pickle
import re
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import six
import tqdm

from cifar10 import records
from cifar10.errors import InputError

log = logging.getLogger('cifar10')

URL = 'https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz'
ARCHIVE_NAME = 'cifar-10-python.tar.gz'
FOLDER_NAME = 'cifar-10-batches-py'
SYNTHETIC_NAME = 'cifar-10-synthetic.tar.gz'

BATCHES = {
  'train': tuple(f'data_batch_{index}' for index in range(1, 5)),
  'validation': ('data_batch_5',),
  'eval': ('test_batch',),
}

# Of the published archive's members.
PUBLISHED_SHA256 = {
  'data_batch_1': '54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd',
  'data_batch_2': '766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8',
  'data_batch_3': '0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9',
  'data_batch_4': '3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b',
  'data_batch_5': 'd91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154',
  'test_batch': 'f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831',
}

_ATTEMPTS = 5
_FIRST_PAUSE = 1.0  # seconds before the second attempt; doubles
_TIMEOUT = 30  # seconds without a byte
_BLOCK = 1 << 18  # bytes read at a time
_LARGEST_MEMBER = 1 << 28  # bytes: a published member has 31 MB; guards memory against a bad tar

# Everything that a pickle of an array of bytes names, in NumPy 1 and 2.
_ADMITTED = {
  ('numpy.core.multiarray', '_reconstruct'),
  ('numpy._core.multiarray', '_reconstruct'),
  ('numpy', 'ndarray'),
  ('numpy', 'dtype'),
  ('_codecs', 'encode'),
}


def download(url: str, path: str, first_pause: float = _FIRST_PAUSE) -> None:
  """Fetches `url` into `path`, going on with `path`.part where there is one.

  Args:
    url: what to fetch.
    path: appears when complete.
    first_pause: seconds before the second attempt; each further pause is twice as long.

  Raises:
    InputError: nothing came after five attempts, or the server refused; says what to do instead.
  """
  pause = first_pause
  for attempt in range(1, _ATTEMPTS + 1):
    try:
      _fetch(url, path + '.part')
      os.replace(path + '.part', path)
      return
    except (OSError, http.client.HTTPException, ValueError) as error:
      if isinstance(error, urllib.error.HTTPError) and error.code == 416:
        os.remove(path + '.part')  # It is longer than the file: not a part of this one.
      refused = isinstance(error, ValueError) or (
        isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410)
      )
      if refused or attempt == _ATTEMPTS:
        raise InputError(
          f'{url} could not be downloaded ({error}); put the archive at {path} or name it with '
          '--archive FILE'
        ) from error
      log.info('download interrupted (%s); trying again in %.0f s', error, pause)
      time.sleep(pause)
      pause *= 2


def _fetch(url: str, part: str) -> None:
  """Appends to `part` what it lacks of `url`; raises OSError when the connection ends early."""
  done = os.path.getsize(part) if os.path.exists(part) else 0
  request = urllib.request.Request(url, headers={'Range': f'bytes={done}-'} if done else {})
  with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    if resumed and not response.headers.get('Content-Range', '').startswith(f'bytes {done}-'):
      raise OSError('the server sent another range than asked for')
    start = done if resumed else 0  # A server that ignores Range sends everything.
    left = response.headers.get('Content-Length')
    total = start + int(left) if left else None
    bar = tqdm.tqdm(
      total=total, initial=start, unit='B', unit_scale=True, desc=os.path.basename(url)
    )
    with open(part, 'ab' if resumed else 'wb') as file, bar:
      while block := response.read(_BLOCK):
        file.write(block)
        bar.update(len(block))
      if total is not None and file.tell() != total:
        raise OSError(f'the connection ended after {file.tell()} of {total} bytes')


def read_subset(
  source: str, subset: str, digests: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray]:
  """One split's images and labels, verified.

  Args:
    source: an archive, or the unpacked folder.
    subset: 'train', 'validation' or 'eval'.
    digests: each member's SHA-256.

  Returns:
    uint8 [n, 3072], planes R, G, B, and int64 [n].

  Raises:
    InputError: the archive or a member is missing, damaged or not what it should be.
  """
  members = _read_members(source, BATCHES[subset])
  images, labels = [], []
  for name in BATCHES[subset]:
    digest = hashlib.sha256(members[name]).hexdigest()
    if digest != digests[name]:
      raise InputError(
        f'{name} in {source} has SHA-256 {digest}, not {digests[name]}: it is damaged or not '
        f'CIFAR-10; delete {source} and run again'
      )
    batch_images, batch_labels = decode_batch(members[name], f'{name} in {source}')
    images.append(batch_images)
    labels.append(batch_labels)
  return np.concatenate(images), np.concatenate(labels)


def decode_batch(pickled: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
  """A batch's pickle -> images uint8 [n, 3072], labels int64 [n]; raises InputError naming it."""
  try:
    batch = _Unpickler(io.BytesIO(pickled), encoding='bytes').load()
    data, labels = batch[b'data'], np.asarray(batch[b'labels'])
  except InputError as error:
    raise InputError(f'{name}: {error}') from None
  except Exception as error:  # Whatever a damaged pickle makes the unpickler raise.
    raise InputError(f'{name} is not a CIFAR-10 batch ({error!r}); fetch it again') from error
  wanted = (len(labels), records.IMAGE_BYTES)
  if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != wanted:
    found = f'{getattr(data, "dtype", type(data))} {getattr(data, "shape", "")}'
    raise InputError(f'{name} has images of {found}, not uint8 {wanted}; fetch it again')
  bad = (labels < 0) | (labels >= records.NUM_CLASSES)
  if bad.any():
    raise InputError(f'{name} has a label {labels[bad][0]}, not 0 to 9; fetch it again')
  return data, labels.astype(np.int64)


class _Unpickler(pickle.Unpickler):
  """Builds arrays and plain values, and nothing that could run code."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in _ADMITTED:
      raise InputError(f'its pickle asks for {module}.{name}, which no CIFAR-10 batch needs')
    return super().find_class(module, name)


def _read_members(source: str, names: Iterable[str]) -> dict[str, bytes]:
  """The named members' bytes; nothing is extracted to disk."""
  names = set(names)
  try:
    if os.path.isdir(source):
      found = {name: _read_file(os.path.join(source, name)) for name in names}
    else:
      found = {}
      with tarfile.open(source, 'r:*') as tar:
        for member in tar:
          folder, _, name = member.name.rpartition('/')
          if folder == FOLDER_NAME and name in names and member.isfile():
            if member.size > _LARGEST_MEMBER:
              raise InputError(f'{name} in {source} has {member.size} bytes: not CIFAR-10')
            file = tar.extractfile(member)
            assert file is not None  # It is a regular file.
            found[name] = file.read()
            if len(found) == len(names):
              break
  except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
    raise InputError(f'{source} cannot be read ({error}); delete it and run again') from error
  missing = ', '.join(sorted(names - set(found)))
  if missing:
    raise InputError(f'{source} lacks {missing}: it is not CIFAR-10; delete it and run again')
  return found


def _read_file(path: str) -> bytes:
  with open(path, 'rb') as file:
    return file.read()


def write_synthetic(path: str, images_per_batch: int, seed: int) -> dict[str, str]:
  """Writes an archive like the published one with generated images.

  Args:
    path: the archive; appears when complete.
    images_per_batch: in each of six batches.
    seed: fixes every byte.

  Returns:
    Each batch's SHA-256.
  """
  rng = np.random.default_rng(seed)
  label_names = [six.ensure_binary(name) for name in records.CLASS_NAMES]
  members = {
    'batches.meta': _pickle_as_python_2(
      {
        b'num_cases_per_batch': images_per_batch,
        b'label_names': label_names,
        b'num_vis': records.IMAGE_BYTES,
      }
    )
  }
  for name in (*BATCHES['train'], *BATCHES['validation'], *BATCHES['eval']):
    labels = rng.permutation(np.arange(images_per_batch) % records.NUM_CLASSES)
    batch = {
      b'batch_label': b'synthetic ' + name.encode(),
      b'labels': labels.tolist(),
      b'data': synthetic_images(labels, rng),
      b'filenames': [f'synthetic_{i}.png'.encode() for i in range(images_per_batch)],
    }
    members[name] = _pickle_as_python_2(batch)
  _write_tar(path, members)
  return {
    name: hashlib.sha256(content).hexdigest()
    for name, content in members.items()
    if name != 'batches.meta'
  }


def synthetic_images(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Ten textures that a small convolutional network learns and a linear model does not.

  Class 2t + f is texture t (stripes across, stripes down, checks, diagonal stripes, rings) of
  period f (5 or 11 pixels). Phase, colours and noise are random, so that the ten mean images are
  alike; a mirrored or shifted image stays in its class.

  Args:
    labels: [n], 0..9.
    rng: drawn from.

  Returns:
    uint8 [n, 3072], planes R, G, B.
  """
  n = len(labels)
  texture, period = labels // 2, np.where(labels % 2, 11.0, 5.0)[:, np.newaxis, np.newaxis]
  y, x = np.mgrid[: records.HEIGHT, : records.WIDTH].astype(np.float64)

  def draw(low, high):
    return rng.uniform(low, high, [n, 1, 1])

  def wave(distance):
    return np.sin(2 * np.pi * (distance / period + draw(0, 1)))

  direction = np.where(draw(0, 1) < 0.5, -1, 1)
  rings = np.hypot(y - draw(8, 24), x - draw(8, 24))
  textures = np.stack(
    [
      wave(y + 0 * period),
      wave(x + 0 * period),
      wave(y + 0 * period) * wave(x + 0 * period) * 1.5,
      wave((x + direction * y) / np.sqrt(2)),
      wave(rings),
    ]
  )  # [5, n, 32, 32]
  pattern = textures[texture, np.arange(n)][:, np.newaxis]  # [n, 1, 32, 32]
  base = rng.uniform(90, 165, [n, records.DEPTH, 1, 1])
  # Sign and size of every colour's contrast are drawn: no colour tells a class.
  contrast = rng.uniform(25, 75, [n, 1, 1, 1]) * rng.uniform(-1, 1, [n, records.DEPTH, 1, 1])
  noise = rng.normal(0, 8, [n, records.DEPTH, records.HEIGHT, records.WIDTH])
  images = np.clip(base + contrast * pattern + noise, 0, 255)
  return images.astype(np.uint8).reshape(n, records.IMAGE_BYTES)


def _pickle_as_python_2(value: Any) -> bytes:
  """Protocol 2, which Python 2 wrote; NumPy's module by its name of then."""
  content = pickle.dumps(value, protocol=2)
  # NumPy 2 writes a module's name that NumPy 1 does not have.
  return re.sub(rb'cnumpy\._core\.multiarray\n', b'cnumpy.core.multiarray\n', content)


def _write_tar(path: str, members: Mapping[str, bytes]) -> None:
  """A .tar.gz whose bytes depend on the members alone: no times, no names of users."""
  # An empty file name and time 0: gzip would write both into its header.
  with (
    records.replacing(path) as temporary,
    open(temporary, 'wb') as file,
    gzip.GzipFile(filename='', mode='wb', compresslevel=1, fileobj=file, mtime=0) as zipped,
    tarfile.open(fileobj=zipped, mode='w') as tar,
  ):
    for name, content in members.items():
      member = tarfile.TarInfo(f'{FOLDER_NAME}/{name}')
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))
