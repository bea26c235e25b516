"""The published archives of CIFAR-10 and CIFAR-100: downloaded, verified, unpacked and read.

Their members are Python 2 pickles of dicts with byte-string keys. Those with images, the batches,
have `data` (uint8 [n, 3072]: planes R, G, B, rows of 32) and one or two kinds of labels; another
member has the names of the classes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import http.client
import io
import lzma
import os
import pickle
import posixpath
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import six

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.data.build.synthetic import TEXTURES, synthetic_images
from cifar10.data.manifest import IMAGE_BYTES

Example = tuple[np.ndarray, int]  # An image, uint8 [3072], planes R, G, B, and its label.
Reader = Callable[[Sequence[str]], Iterator[Example]]  # Yields the examples in files.

_ATTEMPTS = 5  # Of a download.
_TIMEOUT = 30  # seconds without a byte
_REFUSALS = (401, 403, 404, 410)  # HTTP's codes after which another attempt is of no use.


class Opened(NamedTuple):
  """What a source of images has when it is ready to be converted."""

  classes: tuple[str, ...]  # Their names, in the order of the labels.
  splits: Mapping[str, tuple[Sequence[str], Reader]]  # By name: its files, and what reads them.
  remarks: Mapping[str, int]  # More entries for the manifest.


class Source(NamedTuple):
  """Where images come from."""

  identity: Mapping[str, object]  # The manifest's entry on it; equal entries mean equal records.
  open: Callable[[str], Opened]  # With the data dir; raises InputError.
  description: manifest.DatasetInfo | None = None  # None: with computed means and deviations.


class Labels(NamedTuple):
  """One kind of labels of an archive."""

  name: str  # The name of the data set with these labels.
  num_classes: int
  key: bytes  # The key in batches.
  names_key: bytes  # The key in the member with names.


@dataclasses.dataclass(frozen=True)
class Published:
  """The location, format and digests of a published archive."""

  name: str  # The value of --dataset.
  url: str
  folder: str  # The folder of its members.
  algorithm: str  # Of `digests`, named as in hashlib.
  digests: Mapping[str, str]  # By member that is read.
  members: Mapping[str, tuple[str, ...]]  # By split.
  names_member: str
  labels: Mapping[str, Labels]  # By the value of --labels; the first is the default.


CIFAR10 = Published(
  name='cifar10',
  url='https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz',
  folder='cifar-10-batches-py',
  algorithm='sha256',
  digests={
    'data_batch_1': '54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd',
    'data_batch_2': '766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8',
    'data_batch_3': '0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9',
    'data_batch_4': '3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b',
    'data_batch_5': 'd91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154',
    'test_batch': 'f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831',
  },
  members={
    'train': ('data_batch_1', 'data_batch_2', 'data_batch_3', 'data_batch_4'),
    'validation': ('data_batch_5',),
    'eval': ('test_batch',),
  },
  names_member='batches.meta',
  labels={'fine': Labels('cifar10', 10, b'labels', b'label_names')},
)

CIFAR100 = Published(
  name='cifar100',
  url='https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz',
  folder='cifar-100-python',
  algorithm='md5',  # The md5 digests of its members are widely published.
  digests={
    'train': '16019d7e3df5f24257cddd939b257f8d',
    'test': 'f0ef6b0ae62326f3e7ffdfab6717acfc',
    'meta': '7973b15100ade9c7d40fb424638fde48',
  },
  members={'train': ('train',), 'validation': ('train',), 'eval': ('test',)},
  names_member='meta',
  labels={
    'fine': Labels('cifar100', 100, b'fine_labels', b'fine_label_names'),
    'coarse': Labels('cifar100-coarse', 20, b'coarse_labels', b'coarse_label_names'),
  },
)

PUBLISHED = {published.name: published for published in (CIFAR10, CIFAR100)}


def archive_source(
  published: Published = CIFAR10,
  labels: str = 'fine',
  *,
  path: str | None = None,
  url: str | None = None,
  synthetic_images: int | None = None,
  seed: int = 0,
) -> Source:
  """A published archive, from any place, or so many synthetic images a batch in its format.

  `path` and `url` are another place of the archive, as of `download_and_extract`.
  """
  kind = published.labels[labels]

  def opened(data_dir: str) -> Opened:
    if synthetic_images is None:
      folder = download_and_extract(data_dir, published=published, archive=path, url=url)
    else:
      folder = write_synthetic(data_dir, synthetic_images, seed, published)
    splits = {}
    for split, names in published.members.items():
      is_shared = split != 'eval' and published.members['train'] == published.members['validation']
      part = split if is_shared else 'all'
      read = functools.partial(read_batches, labels=kind, part=part)
      splits[split] = ([os.path.join(folder, name) for name in names], read)
    if published is CIFAR10:
      return Opened(manifest.CIFAR10.classes, splits, {})
    return Opened(read_names(os.path.join(folder, published.names_member), kind), splits, {})

  # CIFAR-10 has the published means and deviations, which are rounded.
  description = manifest.CIFAR10 if published is CIFAR10 else None
  if synthetic_images is None:
    return Source({'name': kind.name, 'source': 'published'}, opened, description)
  made = {'images_per_batch': synthetic_images, 'seed': seed}
  return Source({'name': kind.name, 'source': 'synthetic', **made}, opened, description)


def download_and_extract(
  data_dir: str,
  *,
  published: Published = CIFAR10,
  archive: str | None = None,
  url: str | None = None,
) -> str:
  """Unpacks a published archive into DATA_DIR/cifar-10-batches-py, or whatever its folder is.

  Args:
    data_dir: where the archive, or the folder, is or is downloaded to.
    published: which archive.
    archive: another place of the archive, or of its folder.
    url: where to download it from, in place of the original address.

  Returns:
    The folder of the members, whose digests are the published ones.

  Raises:
    InputError: the archive cannot be had, or is damaged, or another one.
  """
  packed = os.path.join(data_dir, os.path.basename(published.url))
  unpacked = os.path.join(data_dir, published.folder)
  path = archive or next(filter(files.exists, (packed, unpacked)), packed)
  if not archive and not files.exists(path):
    files.make_folder(data_dir or os.curdir)
    # A local download resumes beside its path; one for a URL is made elsewhere and copied.
    with files.replacing(path) if files.is_url(path) else contextlib.nullcontext(path) as local:
      download(url or published.url, local)
  folder = path if files.is_dir(path) else unpacked
  lacking = set(published.digests)
  for name, content in _members(path, published):
    digest = hashlib.new(published.algorithm, content, usedforsecurity=False).hexdigest()
    if digest != published.digests.get(name, digest):
      raise InputError(
        f'{name} in {path} has {published.algorithm} {digest}, not {published.digests[name]}: it '
        f'is damaged or not of {published.name}; delete {path} and run again'
      )
    lacking.discard(name)
    if folder != path:
      _write(folder, name, content)
  if lacking:
    raise InputError(
      f'{path} lacks {", ".join(sorted(lacking))}: it is not {published.name}; name what it is '
      'with --dataset, or another --archive, or delete it if it is a download'
    )
  return folder


def download(url: str, path: str, first_pause: float = 1) -> None:
  """Downloads `url` to `path`, which appears when all is there, resuming from `path`.part.

  `first_pause`: seconds before the second attempt; each further pause is twice as long.

  Raises:
    InputError: five attempts failed, or the server refused.
    OSError: the disk is full.
  """
  for attempt in range(_ATTEMPTS):
    try:
      _fetch(url, path + '.part')
      os.replace(path + '.part', path)
      return
    except (OSError, http.client.HTTPException, ValueError) as error:
      code = error.code if isinstance(error, urllib.error.HTTPError) else None
      if getattr(error, 'errno', None) in files.FULL:
        raise  # Of the disk, not of the network.
      if code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        os.remove(path + '.part')  # It is longer than the file, so it belongs to another one.
      if isinstance(error, ValueError) or code in _REFUSALS or attempt == _ATTEMPTS - 1:
        raise InputError(
          f'{url} could not be downloaded ({error}); put the archive at {path} or name it with '
          '--archive FILE'
        ) from error
      pause = first_pause * 2**attempt
      log.info('download interrupted (%s); trying again in %.0f s', error, pause)
      time.sleep(pause)


def _fetch(url: str, part: str) -> None:
  """Appends to `part` what is missing of `url`; raises OSError if the connection ends early."""
  done = os.path.getsize(part) if os.path.exists(part) else 0
  request = urllib.request.Request(url, headers={'Range': f'bytes={done}-'} if done else {})
  with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
    # A server that ignores Range sends the whole file.
    start = done if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
    left = response.headers.get('Content-Length')
    total = start + int(left) if left else None
    bar = logs.bar(total=total, initial=start, unit='B', unit_scale=True)
    with open(part, 'ab' if start else 'wb') as file, bar:
      while block := response.read(1 << 18):
        file.write(block)
        bar.update(len(block))
      if total is not None and file.tell() != total:
        raise OSError(f'the connection ended after {file.tell()} of {total} bytes')


def _members(path: str, published: Published) -> Iterator[tuple[str, bytes]]:
  """Yields the names and contents of the members in an archive, or in its unpacked folder."""
  if files.is_dir(path):
    for name in published.digests:
      if files.exists(os.path.join(path, name)):
        yield name, files.read(os.path.join(path, name))
    return
  try:
    with files.opened(path) as file, tarfile.open(fileobj=file, mode='r:*') as tar:
      for member in tar:
        folder, name = posixpath.split(posixpath.normpath(member.name))  # './cifar-10-...' counts.
        if folder == published.folder and (content := tar.extractfile(member)):
          yield name, content.read()
  # What tarfile raises for damage depends on what it takes the damaged bytes for.
  except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
    why = str(error).partition('\n')[0].rstrip(':')  # tarfile lists all compressions it tried.
    raise InputError(
      f'{path} cannot be read ({why}); name another --archive, or delete it if it is a download'
    ) from error


def _write(folder: str, name: str, content: bytes) -> None:
  files.make_folder(folder)
  files.remove_unfinished(os.path.join(folder, name))
  with files.writing(os.path.join(folder, name)) as file:
    file.write(content)


def write_synthetic(
  data_dir: str, images_per_batch: int, seed: int, published: Published = CIFAR10
) -> str:
  """Writes the members of an archive with generated images, as if they were unpacked.

  Each of CIFAR-10's six batches has `images_per_batch`; CIFAR-100's two members have as many
  together, `train` five times as many as `test`. Returns the folder: DATA_DIR/cifar-10-synthetic.
  """
  rng = np.random.default_rng(seed)
  folder = os.path.join(data_dir, published.name.replace('cifar', 'cifar-') + '-synthetic')

  def write(name: str, content: Mapping[bytes, object]) -> None:
    _write(folder, name, pickle.dumps(content, protocol=2))  # As Python 2 does.

  if published is CIFAR10:
    for name in published.digests:
      labels = rng.permutation(np.arange(images_per_batch) % manifest.CIFAR10.num_classes)
      write(name, {b'labels': labels.tolist(), b'data': synthetic_images(labels, rng)})
  else:
    fine, coarse = (kind.num_classes for kind in published.labels.values())
    names = {
      b'fine_label_names': [b'texture_%02d' % number for number in range(fine)],
      b'coarse_label_names': [b'group_%02d' % number for number in range(coarse)],
    }
    write(published.names_member, names)
    for name, batches in (('test', 1), ('train', 5)):
      labels = rng.permutation(np.arange(batches * images_per_batch) % fine)
      # Batch by batch, because making one image takes more than 100 KB.
      parts = [synthetic_images(part, rng, fine) for part in np.split(labels, batches)]
      # Fine classes with two equal longer textures share a coarse class.
      both = {b'fine_labels': labels.tolist(), b'coarse_labels': (labels // TEXTURES).tolist()}
      write(name, {**both, b'data': np.concatenate(parts)})
  log.info('made %s: %s images a batch', folder, f'{images_per_batch:,}')
  return folder


def read_batches(
  input_files: Sequence[str], labels: Labels = CIFAR10.labels['fine'], part: str = 'all'
) -> Iterator[Example]:
  """Yields the examples of pickled batches.

  `part`: 'all' of each batch, its last fifth ('validation'), or what is before that ('train').

  Raises:
    InputError: a file is no such batch.
  """
  for path in input_files:
    content = _unpickled(path)
    try:
      images, numbers = content[b'data'], np.asarray(content[labels.key])
      shape, kind = (*numbers.shape, IMAGE_BYTES), numbers.dtype.kind
      is_batch = (images.dtype, images.shape) == (np.uint8, shape) and kind in 'iu'
      is_batch = is_batch and numbers.min() >= 0 and numbers.max() < labels.num_classes
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
      is_batch = False
    if not is_batch:
      raise InputError(
        f'{path} is no batch of {labels.name}: uint8 [n, {IMAGE_BYTES}] as `data` and n labels '
        f'from 0 to {labels.num_classes - 1} as `{labels.key.decode()}`; fetch it again'
      )
    first_held_out = len(images) - len(images) // 5
    parts = {'train': slice(first_held_out), 'validation': slice(first_held_out, None)}
    chosen = parts.get(part, slice(None))
    yield from zip(images[chosen], map(int, numbers[chosen]))


def read_names(path: str, labels: Labels) -> tuple[str, ...]:
  """Returns the classes' names in the order of the labels, from the member that has them."""
  return tuple(six.ensure_str(name) for name in _unpickled(path)[labels.names_key])


def _unpickled(path: str) -> Any:
  content = files.read(path)
  try:
    return _Unpickler(io.BytesIO(content), encoding='bytes').load()
  except Exception as error:  # A damaged pickle can raise anything.
    raise InputError(f'{path} is no pickled batch ({error}); fetch it again') from error


class _Unpickler(pickle.Unpickler):
  """Builds arrays and plain values only, nothing that could run code."""

  ADMITTED = (  # All names in a pickle of a byte array, by NumPy 1 and 2.
    ('numpy.core.multiarray', '_reconstruct'),
    ('numpy._core.multiarray', '_reconstruct'),
    ('numpy', 'ndarray'),
    ('numpy', 'dtype'),
    ('_codecs', 'encode'),
  )

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in self.ADMITTED:
      raise pickle.UnpicklingError(f'it asks for {module}.{name}, which no CIFAR batch needs')
    return super().find_class(module, name)
