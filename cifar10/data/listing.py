"""Which files of a folder of images belong to which class and split, by where they lie."""

import hashlib
import os
from collections.abc import Sequence

from cifar10.data import data_set, manifest
from cifar10.platform.errors import InputError
from cifar10.platform.logs import log

MOST_NAMED = 20  # Files that are left out and named in the log, each for the same reason.


def read_folder(folder: str) -> dict[str, dict[str, list[str]]]:
  """The files by split and class, in sorted order.

  FOLDER/CLASS/FILE are all `train`; of FOLDER/SPLIT/CLASS/FILE, `validation` may be missing.

  Raises:
    InputError: fewer than two classes, an empty one, or folders where files should be.
  """
  return _read_splits(folder) if _holds_splits(folder) else {'train': _read_classes(folder)}


def digest(folder: str, paths: Sequence[str]) -> str:
  """A SHA-256 of all files' names and sizes."""
  sha256 = hashlib.sha256()
  for path in sorted(paths):
    size = os.path.getsize(path) if os.path.exists(path) else -1
    sha256.update(os.fsencode(f'{os.path.relpath(path, folder)}\0{size}\n'))
  return sha256.hexdigest()


def _holds_splits(folder: str) -> bool:
  """Whether its sub-folders are splits: a class may well be called `train`."""
  names = _sub_folders(folder)
  return set(names) <= set(manifest.SUBSETS) and any(
    _sub_folders(os.path.join(folder, name)) for name in names
  )


def _read_splits(folder: str) -> dict[str, dict[str, list[str]]]:
  """Each split's classes; raises InputError where train or eval is missing, or classes differ."""
  parts = {name: _read_classes(os.path.join(folder, name)) for name in _sub_folders(folder)}
  for needed in ('train', 'eval'):
    if needed not in parts:
      raise InputError(
        f'{folder} has the folder {next(iter(parts))} but not {needed}; add it, or put the '
        f'classes straight into {folder}'
      )
  for name, classes in parts.items():
    _check_same(os.path.join(folder, name), set(classes), set(parts['train']))
  return parts


def _check_same(folder: str, classes: set[str], wanted: set[str]) -> None:
  """Raises InputError where a split's classes are not the training split's."""
  faults = [
    f'{verb} {", ".join(map(repr, sorted(names)))}'
    for verb, names in (('lacks', wanted - classes), ('has', classes - wanted))
    if names
  ]
  if faults:
    raise InputError(
      f'{folder} has other classes than train: it {" and ".join(faults)}; give each split the same'
    )


def _read_classes(folder: str) -> dict[str, list[str]]:
  """The sub-folders and their files; raises InputError for fewer than two, or an empty one."""
  names = _sub_folders(folder)
  if len(names) < data_set.LEAST_CLASSES:
    raise InputError(
      f'{folder} has {len(names)} sub-folders: give each class one of its own, two at least'
    )
  data_set.check_classes(names, folder)
  beside = sorted(set(_visible(folder)) - set(names))
  for name in beside[:MOST_NAMED]:
    log.info('%s lies in no class: left out', shown(os.path.join(folder, name)))
  if len(beside) > MOST_NAMED:
    log.info('and %s files more of %s lie in no class', len(beside) - MOST_NAMED, folder)
  return {name: _class_files(os.path.join(folder, name)) for name in names}


def _class_files(folder: str) -> list[str]:
  names = _visible(folder)
  nested = _sub_folders(folder)
  if nested:
    raise InputError(
      f'{folder} holds the folder {nested[0]!r}: images lie straight in their class; only train, '
      'validation and eval may hold classes'
    )
  if not names:
    raise InputError(f'{folder} holds no images; add some or remove it')
  return [os.path.join(folder, name) for name in names]


def _sub_folders(folder: str) -> list[str]:
  return [name for name in _visible(folder) if os.path.isdir(os.path.join(folder, name))]


def _visible(folder: str) -> list[str]:
  """Names in sorted order: a file system has its own. Hidden ones are not the user's images."""
  try:
    return sorted(name for name in os.listdir(folder) if not name.startswith('.'))
  except OSError as error:
    raise InputError(
      f'--images: {folder} cannot be listed ({error.strerror}); name a folder with one for each '
      'class'
    ) from None


def shown(path: str) -> str:
  """A path for one line of log."""
  return path if path.isprintable() else repr(path)
