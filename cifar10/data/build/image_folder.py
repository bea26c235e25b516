"""Reads a folder with a sub-folder of images for each class, and divides it into three splits."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cifar10.core import logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.data.build.archive import Example, Opened, Source

DEFAULT_SPLIT = (0.8, 0.1, 0.1)  # Train, validation, eval.
MOST_NAMED = 20  # Unreadable files that the log names.

Classes = dict[str, list[str]]  # The paths of each class's images.


def image_folder(
  folder: str, name: str | None = None, split: Sequence[float] | None = None, seed: int = 0
) -> Source:
  """A source of PNG, JPEG and WebP files: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE.

  It lists the files, and reads none before it is opened.

  Args:
    folder: has a sub-folder for each class; or has `train`, `eval` and perhaps `validation` with
      sub-folders for the classes.
    name: the data set's name; default: the folder's.
    split: the shares of train, validation and eval; they sum to 1. If there are folders train and
      eval alone, train is divided by the first two shares.
    seed: random seed of the division and the order.

  Raises:
    InputError: the folder has another structure, or a class has too few images.
  """
  name = os.path.basename(os.path.realpath(folder)) if name is None else name
  listed = _list_splits(folder)
  manifest.DatasetInfo.from_json({'name': name, 'classes': [*listed['train']]}, folder)
  train, validation, evaluation = split or DEFAULT_SPLIT
  held_out = {'validation': validation, 'eval': evaluation}  # The shares of train.
  if 'eval' in listed:
    held_out = {'validation': validation / (train + validation)}
  if 'validation' in listed:
    held_out = {}
  if split and not held_out:
    raise InputError(f'--split has no use: {folder} has a folder for each split; leave it out')
  _divided(listed['train'], held_out, np.random.default_rng(0))  # Or it refuses.
  paths = [path for classes in listed.values() for path in _joined(classes)]
  identity = {
    'name': name,
    'source': 'images',
    **({'split': [train, validation, evaluation]} if held_out else {}),
    'seed': seed,
    'files': len(paths),
    'listing_sha256': _listing_digest(folder, paths),
  }
  return Source(identity, lambda data_dir: _opened(listed, held_out, seed))


def _opened(listed: Mapping[str, Classes], held_out: Mapping[str, float], seed: int) -> Opened:
  """Reads and scales all images, and divides the readable ones, so that each split has each class.

  Raises:
    InputError: of a class no image is readable, or too few.
    StorageError: the storage does not give a file.
  """
  all_paths = [path for classes in listed.values() for path in _joined(classes)]
  images = _read_all(all_paths)
  parts: dict[str, Classes] = {}
  for split, classes in listed.items():
    parts[split] = {name: [p for p in paths if p in images] for name, paths in classes.items()}
    if empty := [name for name, paths in parts[split].items() if not paths]:
      raise InputError(
        f'no file of class {empty[0]} can be read as an image; convert them to PNG, JPEG or WebP, '
        'or remove the class'
      )
  rng = np.random.default_rng(seed)
  parts |= _divided(parts['train'], held_out, rng)
  names = tuple(listed['train'])

  def read(paths: Sequence[str]) -> Iterator[Example]:
    for path in paths:
      yield images[path], names.index(os.path.basename(os.path.dirname(path)))

  splits = {}
  for split in manifest.SUBSETS:
    paths = _joined(parts[split])
    # In random order, so that the first ones show all classes.
    splits[split] = ([paths[index] for index in rng.permutation(len(paths))], read)
  return Opened(names, splits, {'unreadable': len(all_paths) - len(images)})


def _read_all(paths: Sequence[str]) -> dict[str, np.ndarray]:
  """Returns all images that can be read, uint8 [3072] (planes R, G, B), by path."""
  from cifar10.data import image_files  # noqa: PLC0415  (TensorFlow, as in writer.py)

  def read(path: str) -> np.ndarray | str:
    try:
      return image_files.read_image(path)[0].transpose(2, 0, 1).ravel()
    except InputError as error:
      return str(error)

  found: dict[str, np.ndarray] = {}
  unread = 0
  images = image_files.read_ahead(read, paths)
  with logs.bar(images, total=len(paths), unit=' images', desc='read') as shown:
    for path, image in zip(paths, shown):
      if isinstance(image, np.ndarray):
        found[path] = image
        continue
      unread += 1
      if unread <= MOST_NAMED:
        log.info('left out: %s', image)
  return found


def _joined(classes: Classes) -> list[str]:
  return [path for paths in classes.values() for path in paths]


def _divided(
  classes: Classes, held_out: Mapping[str, float], rng: np.random.Generator
) -> dict[str, Classes]:
  """Divides each class's images at random between `train` and the splits held out of it.

  Each held-out split gets its share of every class, rounded, at least one image; train the rest.

  Raises:
    InputError: no image of a class is left for train.
  """
  parts: dict[str, Classes] = {name: {} for name in ('train', *held_out)}
  for name, images in classes.items():
    left = [images[index] for index in rng.permutation(len(images))]
    for split, share in held_out.items():
      count = max(1, int(len(images) * share + 0.5))
      parts[split][name], left = left[:count], left[count:]
    if not left:
      raise InputError(
        f'class {name} has {len(images)} images, too few for {", ".join(parts)}; add images or '
        'change --split'
      )
    parts['train'][name] = left
  return parts


def _listing_digest(folder: str, paths: Sequence[str]) -> str:
  """Returns the SHA-256 of all names and sizes of files, since reading all is slow."""
  sha256 = hashlib.sha256()
  for path in sorted(paths):
    size = os.path.getsize(path) if os.path.exists(path) else -1
    sha256.update(os.fsencode(f'{os.path.relpath(path, folder)}\0{size}\n'))
  return sha256.hexdigest()


def _list_splits(folder: str) -> dict[str, Classes]:
  """Returns the files by split and class, sorted; all are `train` if no sub-folders are splits.

  Raises:
    InputError: train or eval is missing, or classes differ, are too few, empty or hold folders.
  """
  names = _sub_folders(folder)
  holds_classes = any(_sub_folders(os.path.join(folder, name)) for name in names)
  if not (set(names) <= set(manifest.SUBSETS) and holds_classes):  # A class may be called `train`.
    return {'train': _list_classes(folder)}
  splits = {name: _list_classes(os.path.join(folder, name)) for name in names}
  if not {'train', 'eval'} <= set(splits) or len(set(map(tuple, splits.values()))) > 1:
    raise InputError(
      f'{folder} must have the folders train and eval, and may have validation, each with the same '
      'classes in it; add what is missing'
    )
  return splits


def _list_classes(folder: str) -> Classes:
  """Returns sub-folders with their files; raises InputError for what cannot be classes."""
  classes = {
    name: [os.path.join(folder, name, file) for file in _visible(os.path.join(folder, name))]
    for name in _sub_folders(folder)
  }
  for name, paths in classes.items():
    if not paths or any(map(os.path.isdir, paths)):
      raise InputError(
        f'{folder}/{name} must hold images, and no folders: only train, validation and eval may '
        'hold classes'
      )
  return classes


def _sub_folders(folder: str) -> list[str]:
  return [name for name in _visible(folder) if os.path.isdir(os.path.join(folder, name))]


def _visible(folder: str) -> list[str]:
  """Returns names without hidden files, sorted: the order of a file system is its own."""
  try:
    return sorted(name for name in os.listdir(folder) if not name.startswith('.'))
  except OSError as error:
    raise InputError(
      f'--images: {folder} cannot be listed ({error.strerror}); name a folder with one for each '
      'class'
    ) from None
