"""The published archives of CIFAR-10 and CIFAR-100: downloaded, verified, unpacked and read.

Their members are Python 2 pickles of dicts with byte-string keys. Those with images, the batches,
have `data` (uint8 [n, 3072]: planes R, G, B, rows of 32) and one or two kinds of labels; another
member has the names of the classes.
"""

import contextlib
import dataclasses
import hashlib
import http.client
import io
import os
import pickle
import posixpath
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import six

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.data import manifest
from cifar10.data.manifest import DEPTH, IMAGE_BYTES, DatasetInfo

Example = tuple[np.ndarray, int]  # An image, uint8 [3072], planes R, G, B, and its label.
Fifths = tuple[int, int]  # Which part of a batch: from fifth to fifth.
NAMES = 'meta'  # CIFAR-100's member with the names of its classes.


class Opened(NamedTuple):
  """What a source of images has when it is ready to be converted."""

  data: DatasetInfo
  splits: Mapping[str, Iterable[Example]]  # To be read once.
  remarks: Mapping[str, int] = {}  # More entries for the manifest.


class Source(NamedTuple):
  """Where images come from."""

  identity: Mapping[str, object]  # The manifest's entry on it; equal entries mean equal records.
  open: Callable[[], Opened]  # Raises InputError.


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
  splits: Mapping[str, tuple[tuple[str, ...], Fifths]]  # The members, and what of each.
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
  splits={
    'train': (('data_batch_1', 'data_batch_2', 'data_batch_3', 'data_batch_4'), (0, 5)),
    'validation': (('data_batch_5',), (0, 5)),
    'eval': (('test_batch',), (0, 5)),
  },
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
  splits={
    'train': (('train',), (0, 4)),
    'validation': (('train',), (4, 5)),
    'eval': (('test',), (0, 5)),
  },
  labels={
    'fine': Labels('cifar100', 100, b'fine_labels', b'fine_label_names'),
    'coarse': Labels('cifar100-coarse', 20, b'coarse_labels', b'coarse_label_names'),
  },
)

PUBLISHED = {published.name: published for published in (CIFAR10, CIFAR100)}


def opened(folder: str, published: Published, labels: Labels) -> Opened:
  """The splits in a folder of an archive's members, and the data set that they are."""

  def read(split: str) -> Iterator[Example]:
    members, fifths = published.splits[split]
    return read_batches([os.path.join(folder, name) for name in members], labels, fifths)

  splits = {split: read(split) for split in published.splits}
  if published is CIFAR10:  # With the published means and deviations, which are rounded.
    return Opened(manifest.CIFAR10, splits)
  names = _unpickled(os.path.join(folder, NAMES))[labels.names_key]
  return Opened(measured(labels.name, [*map(six.ensure_str, names)], read('train')), splits)


def measured(name: str, classes: Sequence[str], examples: Iterable[Example]) -> DatasetInfo:
  """A data set with the means and deviations of these training examples.

  They are exact for any number of images. Deviations are at least one level of 255: networks divide
  by them, even by a constant channel's.
  """
  counts = np.zeros([DEPTH, 256], np.int64)
  for image, _ in examples:
    for channel, plane in enumerate(image.reshape(DEPTH, -1)):
      counts[channel] += np.bincount(plane, minlength=256)
  levels, totals = np.arange(256) / 255, counts.sum(1)
  means = counts @ levels / totals
  variances = (counts * (levels - means[:, np.newaxis]) ** 2).sum(1) / totals
  both = means, np.maximum(np.sqrt(variances), levels[1])
  rounded = (tuple(round(float(number), 6) for number in each) for each in both)
  return DatasetInfo(name, tuple(classes), *rounded)


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
        f'{name} in {path} has {published.algorithm} {digest}, not {published.digests[name]}; '
        f'delete {path} and run again'
      )
    lacking.discard(name)
    if folder != path:
      files.make_folder(folder)
      files.remove_unfinished(os.path.join(folder, name))
      with files.writing(os.path.join(folder, name)) as file:
        file.write(content)
  if lacking:
    raise InputError(
      f'{path} lacks {", ".join(sorted(lacking))}: it is not {published.name}; delete it, or name '
      'another --dataset or --archive'
    )
  return folder


def download(url: str, path: str) -> None:
  """Downloads `url` to `path`, which appears when all is there; goes on with `path`.part.

  Raises InputError where the server refused, or the connection ended; OSError for a full disk.
  """
  part = path + '.part'
  try:
    done = os.path.getsize(part) if os.path.exists(part) else 0
    request = urllib.request.Request(url, headers={'Range': f'bytes={done}-'} if done else {})
    with urllib.request.urlopen(request, timeout=30) as response:  # Seconds without a byte.
      # A server that ignores Range sends the whole file.
      start = done if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
      left = response.headers.get('Content-Length')
      total = start + int(left) if left else None
      shown = logs.bar.wrapattr(response, 'read', total=total, initial=start)
      with open(part, 'ab' if start else 'wb') as file, shown as reader:
        shutil.copyfileobj(reader, file, 1 << 18)
        if total is not None and file.tell() != total:
          raise OSError(f'the connection ended after {file.tell()} of {total} bytes')
    os.replace(part, path)
  except (OSError, http.client.HTTPException, ValueError) as error:
    if getattr(error, 'errno', None) in files.FULL:
      raise  # Of the disk, not of the network.
    if getattr(error, 'code', None) == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
      os.remove(part)  # As long as the file (killed before the move), or of another one.
    raise InputError(
      f'{url} could not be downloaded ({error}); run again to go on, or put the archive at {path} '
      'or name it with --archive FILE'
    ) from error


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
  except Exception as error:  # It depends on what tarfile takes the damaged bytes for.
    why = str(error).partition('\n')[0].rstrip(':')  # tarfile lists all compressions it tried.
    raise InputError(
      f'{path} cannot be read ({why}); name another --archive, or delete it if it is a download'
    ) from error


def read_batches(
  input_files: Sequence[str], labels: Labels = CIFAR10.labels['fine'], fifths: Fifths = (0, 5)
) -> Iterator[Example]:
  """Yields the examples of pickled batches; raises InputError for a file that is none."""
  for path in input_files:
    content = _unpickled(path)
    try:
      images, numbers = content[b'data'], np.asarray(content[labels.key])
      is_batch = (images.dtype, images.shape) == (np.uint8, (*numbers.shape, IMAGE_BYTES))
      is_batch = is_batch and bool(np.isin(numbers, range(labels.num_classes)).all())
    except (AttributeError, KeyError, TypeError, ValueError):
      is_batch = False
    if not is_batch:
      raise InputError(f'{path} is no batch of {labels.name}; fetch that')
    first, end = (len(images) * fifth // 5 for fifth in fifths)
    yield from zip(images[first:end], map(int, numbers[first:end]))


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
