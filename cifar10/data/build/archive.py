"""The published archives of CIFAR-10 and CIFAR-100: verified and read.

Their members are Python 2 pickles of dicts with byte-string keys. One with images has `data` (uint8
[n, 3072]: planes R, G, B, rows of 32), one or two kinds of labels, `filenames` and `batch_label`;
one more has the classes' names.
"""

import dataclasses
import hashlib
import io
import os
import pickle
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import six

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.data import info
from cifar10.data.info import IMAGE_BYTES

# Bytes: the largest published one has 155 MB; guards memory against a bad tar.
LARGEST_MEMBER = 1 << 28
_HELD_OUT = 5  # Where one member is training and validation split, its last fifth is the latter.

# Everything that a pickle of an array of bytes names, in NumPy 1 and 2.
_ADMITTED = {
  ('numpy.core.multiarray', '_reconstruct'),
  ('numpy._core.multiarray', '_reconstruct'),
  ('numpy', 'ndarray'),
  ('numpy', 'dtype'),
  ('_codecs', 'encode'),
}


class Labels(NamedTuple):
  """One way in which an archive's images are labelled."""

  name: str  # Of the data set that they make.
  key: bytes  # In the members with images.
  names_key: bytes  # In the member with the names.


@dataclasses.dataclass(frozen=True, eq=False)  # There is one of each.
class Published:
  """One published archive: where it is, and what is in it."""

  title: str
  url: str
  folder: str  # That its members lie in.
  algorithm: str  # Of `digests`, in hashlib's words.
  digests: Mapping[str, str]  # Of every member that is read.
  members: Mapping[str, tuple[str, ...]]  # Each split's.
  names_member: str
  labels: Mapping[str, Labels]  # By what --labels calls them; the first is the default.
  # What is known without reading: then the names' member need not be there.
  description: info.DatasetInfo | None = None

  @property
  def file_name(self) -> str:
    """What the archive is called where it is published."""
    return os.path.basename(self.url)

  @property
  def synthetic_name(self) -> str:
    """What a synthetic archive of the same format is called."""
    return self.file_name.replace('-python', '-synthetic')

  def digest(self, content: bytes) -> str:
    """A member's digest, as `digests` has it."""
    return hashlib.new(self.algorithm, content, usedforsecurity=False).hexdigest()


CIFAR10 = Published(
  title='CIFAR-10',
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
    'train': tuple(f'data_batch_{index}' for index in range(1, 5)),
    'validation': ('data_batch_5',),
    'eval': ('test_batch',),
  },
  names_member='batches.meta',
  labels={'fine': Labels('cifar10', b'labels', b'label_names')},
  description=info.CIFAR10,
)

CIFAR100 = Published(
  title='CIFAR-100',
  url='https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz',
  folder='cifar-100-python',
  algorithm='md5',  # Those of its members are widely known, other digests are not.
  digests={
    'train': '16019d7e3df5f24257cddd939b257f8d',
    'test': 'f0ef6b0ae62326f3e7ffdfab6717acfc',
    'meta': '7973b15100ade9c7d40fb424638fde48',
  },
  members={'train': ('train',), 'validation': ('train',), 'eval': ('test',)},
  names_member='meta',
  labels={
    'fine': Labels('cifar100', b'fine_labels', b'fine_label_names'),
    'coarse': Labels('cifar100-coarse', b'coarse_labels', b'coarse_label_names'),
  },
)

PUBLISHED = {'cifar10': CIFAR10, 'cifar100': CIFAR100}


class Archive:
  """One published archive, or one of the same format, that is there to be read."""

  def __init__(
    self, path: str, published: Published, digests: Mapping[str, str], labels: str = 'fine'
  ):
    """Names it; nothing is read yet.

    Args:
      path: the archive, or the unpacked folder.
      published: its format.
      digests: what each member must have, as `Published.digest` makes it.
      labels: which of its labels to read.
    """
    self._path = path
    self._published = published
    self._digests = digests
    self._labels = published.labels[labels]

  def classes(self) -> tuple[str, ...]:
    """The classes' names, in the labels' order.

    Raises:
      InputError: the archive or the names' member is missing, damaged or not what it should be.
    """
    if self._published.description:
      return self._published.description.classes
    member = self._published.names_member
    [content] = self._verified([member])
    names = decode_names(content, f'{member} in {self._path}', self._labels, self._published.title)
    return names

  def read_split(self, split: str, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """One split's images and labels, verified.

    Args:
      split: 'train', 'validation' or 'eval'.
      num_classes: a label is 0 to one less than that.

    Returns:
      uint8 [n, 3072], planes R, G, B, and int64 [n].

    Raises:
      InputError: the archive or a member is missing, damaged or not what it should be.
    """
    names = self._published.members[split]
    images, labels = [], []
    for name, content in zip(names, self._verified(names)):
      decoded = decode_batch(
        content, f'{name} in {self._path}', self._labels, num_classes, self._published.title
      )
      images.append(decoded[0])
      labels.append(decoded[1])
    part = self._part(split, sum(map(len, labels)))
    return np.concatenate(images)[part], np.concatenate(labels)[part]

  def _part(self, split: str, examples: int) -> slice:
    """Which examples of its members are the split: all, unless another split has the same ones."""
    members = self._published.members
    if members['train'] != members['validation'] or split == 'eval':
      return slice(None)
    first_held_out = examples - examples // _HELD_OUT
    return slice(first_held_out) if split == 'train' else slice(first_held_out, None)

  def _verified(self, names: Iterable[str]) -> Iterator[bytes]:
    """The named members' bytes, in order; raises InputError for one with another digest."""
    names = tuple(names)
    members = _read_members(self._path, names, self._published)
    for name in names:
      digest = self._published.digest(members[name])
      if digest != self._digests[name]:
        kind = {'md5': 'MD5', 'sha256': 'SHA-256'}[self._published.algorithm]
        raise InputError(
          f'{name} in {self._path} has {kind} {digest}, not {self._digests[name]}: it is damaged '
          f'or not {self._published.title}; delete {self._path} and run again'
        )
      yield members[name]


def decode_batch(
  pickled: bytes, name: str, kind: Labels, num_classes: int, title: str
) -> tuple[np.ndarray, np.ndarray]:
  """A batch's pickle -> images uint8 [n, 3072], labels int64 [n].

  Args:
    pickled: the member's content.
    name: what to call it in messages.
    kind: which labels.
    num_classes: a label is 0 to one less than that.
    title: of the data set.

  Raises:
    InputError: it is anything else.
  """
  batch = _unpickled(pickled, name, f'{title} batch')
  try:
    data, labels = batch[b'data'], np.asarray(batch[kind.key])
  except Exception as error:  # Whatever indexing another kind of object raises.
    raise InputError(f'{name} is not a {title} batch ({error!r}); fetch it again') from error
  if labels.ndim != 1 or labels.dtype.kind not in 'iu':
    raise InputError(f'{name} has labels that are no list of whole numbers; fetch it again')
  wanted = (len(labels), IMAGE_BYTES)
  if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != wanted:
    kind_and_shape = f'{getattr(data, "dtype", type(data))} {getattr(data, "shape", "")}'
    raise InputError(f'{name} has images of {kind_and_shape}, not uint8 {wanted}; fetch it again')
  bad = (labels < 0) | (labels >= num_classes)
  if bad.any():
    raise InputError(
      f'{name} has a label {labels[bad][0]}, not 0 to {num_classes - 1}; fetch it again'
    )
  return data, labels.astype(np.int64)


def decode_names(pickled: bytes, name: str, kind: Labels, title: str) -> tuple[str, ...]:
  """The names' pickle -> the classes in order; raises InputError where there are none."""
  content = _unpickled(pickled, name, f'list of {title} classes')
  try:
    names = tuple(six.ensure_str(class_name) for class_name in content[kind.names_key])
  except Exception as error:  # As above, or what is no text.
    raise InputError(f'{name} has no class names ({error!r}); fetch it again') from error
  info.check_classes(names, name)
  return names


def _unpickled(pickled: bytes, name: str, kind: str) -> Any:
  try:
    return _Unpickler(io.BytesIO(pickled), encoding='bytes').load()
  except InputError as error:
    raise InputError(f'{name}: {error}') from None
  except Exception as error:  # Whatever a damaged pickle makes the unpickler raise.
    raise InputError(f'{name} is not a {kind} ({error!r}); fetch it again') from error


class _Unpickler(pickle.Unpickler):
  """Builds arrays and plain values, and nothing that could run code."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in _ADMITTED:
      raise InputError(f'its pickle asks for {module}.{name}, which no CIFAR batch needs')
    return super().find_class(module, name)


def _read_members(source: str, names: Iterable[str], published: Published) -> dict[str, bytes]:
  """The named members' bytes; nothing is extracted to disk."""
  names = set(names)
  try:
    if files.is_dir(source):
      present = (name for name in names if files.is_file(os.path.join(source, name)))
      members = {name: files.read(os.path.join(source, name)) for name in present}
    else:
      members = _read_tar(source, names, published)
  except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
    why = str(error).partition('\n')[0]  # tarfile lists all compressions that it has tried.
    raise InputError(f'{source} cannot be read ({why}); delete it and run again') from error
  missing = ', '.join(sorted(names - set(members)))
  if missing:
    raise InputError(
      f'{source} lacks {missing}: it is not {published.title}; name what it is with --dataset, or '
      'delete it and run again'
    )
  return members


def _read_tar(path: str, names: set[str], published: Published) -> dict[str, bytes]:
  """Those of the named members that are there; raises OSError or tarfile.TarError."""
  members: dict[str, bytes] = {}
  with files.opened(path) as opened, tarfile.open(fileobj=opened, mode='r:*') as tar:
    for member in tar:
      folder, _, name = member.name.rpartition('/')
      if folder == published.folder and name in names and member.isfile():
        if member.size > LARGEST_MEMBER:
          raise InputError(f'{name} in {path} has {member.size} bytes: not {published.title}')
        file = tar.extractfile(member)
        assert file is not None  # It is a regular file.
        members[name] = file.read()
        if len(members) == len(names):
          break
  return members
