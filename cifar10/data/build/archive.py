"""Verifies and reads the published archives of CIFAR-10 and CIFAR-100.

The members are Python 2 pickles of dicts with byte-string keys. Those with images have `data`
(uint8 [n, 3072]: planes R, G, B, rows of 32), one or two kinds of labels, `filenames` and
`batch_label`; another member has the names of the classes.
"""

import dataclasses
import hashlib
import io
import os
import pickle
import posixpath
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import six

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.data import info
from cifar10.data.info import IMAGE_BYTES

# Bytes; the largest published member has 155 MB. Protects memory from a bad tar.
LARGEST_MEMBER = 1 << 28
_LARGEST_HEADER = 1 << 20  # Bytes of one that has the next member's long name.
_HELD_OUT = 5  # Where one member holds training and validation split, its last fifth is validation.

# All names in a pickle of a byte array, by NumPy 1 and 2.
_ADMITTED = {
  ('numpy.core.multiarray', '_reconstruct'),
  ('numpy._core.multiarray', '_reconstruct'),
  ('numpy', 'ndarray'),
  ('numpy', 'dtype'),
  ('_codecs', 'encode'),
}


class Labels(NamedTuple):
  """One kind of labels of an archive."""

  name: str  # The name of the data set with these labels.
  key: bytes  # The key in members with images.
  names_key: bytes  # The key in the member with names.


@dataclasses.dataclass(frozen=True, eq=False)  # Published archives are compared by identity.
class Published:
  """The location, format and digests of a published archive."""

  title: str
  url: str
  folder: str  # The folder of its members.
  algorithm: str  # The algorithm of `digests`, named as in hashlib.
  digests: Mapping[str, str]  # By member that is read.
  members: Mapping[str, tuple[str, ...]]  # By split.
  names_member: str
  labels: Mapping[str, Labels]  # By the value of --labels; the first is the default.
  # Known without reading: then the member with names may be missing.
  description: info.DatasetInfo | None = None

  @property
  def file_name(self) -> str:
    """Returns the file name of the published archive."""
    return os.path.basename(self.url)

  def digest(self, content: bytes) -> str:
    """Returns a member's digest by the algorithm of `digests`."""
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
  algorithm='md5',  # The md5 digests of its members are widely published.
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


@dataclasses.dataclass(frozen=True)
class Archive:
  """A published archive, or another one of the same format, which its methods read."""

  path: str  # The archive, or the unpacked folder.
  published: Published  # The format.
  digests: Mapping[str, str]  # What each member must have, as `Published.digest` computes it.
  labels: str = 'fine'  # The kind of labels to read.

  def classes(self) -> tuple[str, ...]:
    """Returns the names of the classes in the order of the labels.

    Raises:
      InputError: the archive or its member with names is missing, damaged or of another format.
    """
    published, kind = self.published, self.published.labels[self.labels]
    if published.description:
      return published.description.classes
    member = published.names_member
    [content] = self._verified([member])
    return decode_names(content, f'{member} in {self.path}', kind, published.title)

  def read_split(self, split: str, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns one split's images and labels, verified.

    Args:
      split: 'train', 'validation' or 'eval'.
      num_classes: labels must be below that.

    Returns:
      uint8 [n, 3072], planes R, G, B, and int64 [n].

    Raises:
      InputError: the archive or a member is missing, damaged or of another format.
    """
    names = self.published.members[split]
    kind, title = self.published.labels[self.labels], self.published.title
    batches = [
      decode_batch(content, f'{name} in {self.path}', kind, num_classes, title)
      for name, content in zip(names, self._verified(names))
    ]
    images, labels = map(np.concatenate, zip(*batches))
    part = self._part(split, len(labels))
    return images[part], labels[part]

  def _part(self, split: str, examples: int) -> slice:
    """Returns the part of the members that is the split: all unless another split shares them."""
    members = self.published.members
    if members['train'] != members['validation'] or split == 'eval':
      return slice(None)
    first_held_out = examples - examples // _HELD_OUT
    return slice(first_held_out) if split == 'train' else slice(first_held_out, None)

  def _verified(self, names: Sequence[str]) -> Iterator[bytes]:
    """Yields the members' bytes in order; raises InputError if a digest differs."""
    members = _read_members(self.path, set(names), self.published)
    for name in names:
      digest = self.published.digest(members[name])
      if digest != self.digests[name]:
        kind = {'md5': 'MD5', 'sha256': 'SHA-256'}[self.published.algorithm]
        raise InputError(
          f'{name} in {self.path} has {kind} {digest}, not {self.digests[name]}: it is damaged '
          f'or not {self.published.title}; delete {self.path} and run again'
        )
      yield members[name]


def decode_batch(
  pickled: bytes, name: str, kind: Labels, num_classes: int, title: str
) -> tuple[np.ndarray, np.ndarray]:
  """Decodes a pickled batch to images uint8 [n, 3072] and labels int64 [n].

  Args:
    pickled: the member's content.
    name: the member's name, for messages.
    kind: the kind of labels to read.
    num_classes: labels must be below that.
    title: the data set's title, for messages.

  Raises:
    InputError: the content is not such a batch.
  """
  batch = _unpickled(pickled, name, f'{title} batch')
  try:
    data, labels = batch[b'data'], np.asarray(batch[kind.key])
  except Exception as error:  # Depends on what kind of object the pickle holds.
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
  """Decodes the pickled names to the classes in order; raises InputError if there are none."""
  content = _unpickled(pickled, name, f'list of {title} classes')
  try:
    names = tuple(six.ensure_str(class_name) for class_name in content[kind.names_key])
  except Exception as error:  # As above, or the names are no text.
    raise InputError(f'{name} has no class names ({error!r}); fetch it again') from error
  info.check_classes(names, name)
  return names


def _unpickled(pickled: bytes, name: str, kind: str) -> Any:
  try:
    return _Unpickler(io.BytesIO(pickled), encoding='bytes').load()
  except InputError as error:
    raise InputError(f'{name}: {error}') from None
  except Exception as error:  # A damaged pickle can raise anything.
    raise InputError(f'{name} is not a {kind} ({error!r}); fetch it again') from error


_REMEDY = 'name another --archive, or delete it if it is a download, and run again'


class _Unpickler(pickle.Unpickler):
  """Builds arrays and plain values only, nothing that could run code."""

  def find_class(self, module: str, name: str) -> Any:
    if (module, name) not in _ADMITTED:
      raise InputError(f'its pickle asks for {module}.{name}, which no CIFAR batch needs')
    return super().find_class(module, name)


def _read_members(source: str, names: set[str], published: Published) -> dict[str, bytes]:
  """Returns the members' bytes; extracts nothing to disk."""
  try:
    if files.is_dir(source):
      present = (name for name in names if files.is_file(os.path.join(source, name)))
      members = {name: files.read(os.path.join(source, name)) for name in present}
    else:
      members = _read_tar(source, names, published)
  except (InputError, MemoryError):
    raise
  except Exception as error:  # A damaged archive can raise anything, as numbers of its headers do.
    why = str(error).partition('\n')[0].rstrip(':')  # tarfile lists all compressions it tried.
    raise InputError(f'{source} cannot be read ({why}); {_REMEDY}') from error
  missing = ', '.join(sorted(names - set(members)))
  if missing:
    raise InputError(
      f'{source} lacks {missing}: it is not {published.title}; name what it is with --dataset, or '
      f'{_REMEDY}'
    )
  return members


class _Member(tarfile.TarInfo):
  """A member of a tar; a long header is one, too, which tarfile would read whole."""

  # The source of tarfile names it as the one to override.
  def _proc_member(self, archive: tarfile.TarFile) -> Any:
    if self.type in b'xgXLK' and self.size > _LARGEST_HEADER:
      raise tarfile.TarError(f'it has a header of {self.size} bytes')
    return super()._proc_member(archive)  # type: ignore[misc]


def _read_tar(path: str, names: set[str], published: Published) -> dict[str, bytes]:
  """Returns those of the members that exist; raises many kinds for a damaged archive."""
  members: dict[str, bytes] = {}
  with (
    files.opened(path) as opened,
    tarfile.open(fileobj=opened, mode='r:*', tarinfo=_Member) as tar,
  ):
    for member in tar:
      folder, name = posixpath.split(posixpath.normpath(member.name))  # './cifar-10-...' counts.
      if folder == published.folder and name in names and member.isfile():
        if member.size > LARGEST_MEMBER:
          raise InputError(f'{name} in {path} has {member.size} bytes: not {published.title}')
        file = tar.extractfile(member)
        assert file is not None  # `isfile` was true.
        members[name] = file.read()
        if len(members) == len(names):
          break
  return members
