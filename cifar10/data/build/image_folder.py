"""Reads a folder with a sub-folder of images for each class, and divides it into three splits."""

import hashlib
import os
from collections.abc import Mapping, Sequence

import numpy as np

from cifar10.core import logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data.build.archive import Example, Opened, Source, measured
from cifar10.data.manifest import SUBSETS, DatasetInfo

DEFAULT_SPLIT = (0.8, 0.1, 0.1)  # Train, validation, eval.

Classes = dict[str, list[str]]  # The paths of each class's images.


def image_folder(
  folder: str, name: str | None = None, split: Sequence[float] | None = None, seed: int = 0
) -> Source:
  """A source of PNG, JPEG and WebP files: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE.

  It lists the files, and reads none before it is opened. Raises InputError where the folder has
  another structure; when it is opened, where a class has too few images.

  Args:
    folder: has a sub-folder a class; or `train`, `eval` and perhaps `validation` with such ones.
    name: the data set's name; default: the folder's.
    split: the shares of train, validation and eval; of the first two where there is no validation.
    seed: random seed of the division and the order.
  """
  listed = _list_splits(folder)
  name = os.path.basename(os.path.realpath(folder)) if name is None else name
  DatasetInfo.from_json({'name': name, 'classes': [*listed['train']]}, folder)  # Or it refuses.
  train, validation, evaluation = split or DEFAULT_SPLIT
  held_out = {'validation': validation, 'eval': evaluation}  # The shares of train.
  if 'eval' in listed:
    held_out = {'validation': validation / (train + validation)}
  if 'validation' in listed:
    held_out = {}
  if split and not held_out:
    raise InputError(f'--split has no use: {folder} has a folder for each split; leave it out')
  paths = [path for classes in listed.values() for each in classes.values() for path in each]
  sizes = ((each, os.path.getsize(each) if os.path.exists(each) else -1) for each in sorted(paths))
  listing = ''.join(f'{os.path.relpath(each, folder)}\0{size}\n' for each, size in sizes)
  identity = {
    'name': name,
    'source': 'images',
    **({'split': [train, validation, evaluation]} if held_out else {}),
    'seed': seed,
    'files': len(paths),
    # Of all names and sizes, since reading all is slow.
    'listing_sha256': hashlib.sha256(os.fsencode(listing)).hexdigest(),
  }

  def opened() -> Opened:
    images = _read_all(paths)
    splits = _divided(listed, images, held_out, seed)
    data = measured(name, [*listed['train']], splits['train'])
    return Opened(data, splits, {'unreadable': len(paths) - len(images)})

  return Source(identity, opened)


def _read_all(paths: Sequence[str]) -> dict[str, np.ndarray]:
  """Returns all images that can be read, uint8 [3072] (planes R, G, B), by path."""
  from cifar10.data import image_files  # noqa: PLC0415  (TensorFlow, as in the generator)

  def read(path: str) -> np.ndarray | None:
    try:
      return image_files.read_image(path).transpose(2, 0, 1).ravel()
    except InputError as error:
      log.info('left out: %s', error)
      return None

  images = image_files.read_ahead(read, paths)
  shown = logs.bar(images, total=len(paths), unit=' images', desc='read')
  return {path: image for path, image in zip(paths, shown) if image is not None}


def _divided(
  listed: Mapping[str, Classes],
  images: Mapping[str, np.ndarray],
  held_out: Mapping[str, float],
  seed: int,
) -> dict[str, list[Example]]:
  """Returns each split's examples in random order, so that the first ones show all classes.

  Of each class's images in train, each split held out of it gets its share, rounded, at least one.
  Raises InputError where a split has no image of a class.
  """
  rng = np.random.default_rng(seed)
  parts = {
    split: {name: [path for path in paths if path in images] for name, paths in classes.items()}
    for split, classes in listed.items()
  }
  for name, paths in parts['train'].items():
    left = [paths[index] for index in rng.permutation(len(paths))]
    for split, share in held_out.items():
      count = max(1, int(len(paths) * share + 0.5))
      parts.setdefault(split, {})[name], left = left[:count], left[count:]
    parts['train'][name] = left
  splits = {}
  for split in SUBSETS:
    if empty := [name for name, paths in parts[split].items() if not paths]:
      raise InputError(f'class {empty[0]} has too few images for {split}; add some, or remove it')
    by_label = enumerate(parts[split].values())
    examples = [(images[path], label) for label, paths in by_label for path in paths]
    splits[split] = [examples[index] for index in rng.permutation(len(examples))]
  return splits


def _list_splits(folder: str) -> dict[str, Classes]:
  """Returns the files by split and class, sorted; all are `train` if no sub-folders are splits."""
  inside = _sub_folders(folder)
  if not (set(inside) <= set(SUBSETS) and any(map(_sub_folders, inside.values()))):
    return {'train': _list_classes(folder)}  # Where a class may be called `train`.
  splits = {name: _list_classes(path) for name, path in inside.items()}
  if not {'train', 'eval'} <= set(splits) or len(set(map(tuple, splits.values()))) > 1:
    raise InputError(
      f'{folder} must have the folders train and eval, and may have validation, each with the same '
      'classes in it; add what is missing'
    )
  return splits


def _list_classes(folder: str) -> Classes:
  classes = {name: _visible(path) for name, path in _sub_folders(folder).items()}
  for name, paths in classes.items():
    if not paths or any(map(os.path.isdir, paths)):
      raise InputError(
        f'{folder}/{name} must hold images, and no folders: only train, validation and eval may '
        'hold classes'
      )
  return classes


def _sub_folders(folder: str) -> dict[str, str]:
  return {os.path.basename(path): path for path in _visible(folder) if os.path.isdir(path)}


def _visible(folder: str) -> list[str]:
  """Returns paths without hidden ones, sorted: the order of a file system is its own."""
  try:
    names = sorted(os.listdir(folder))
  except OSError as error:
    said = f'--images: {folder} cannot be listed ({error.strerror})'
    raise InputError(f'{said}; name a folder with one for each class') from None
  return [os.path.join(folder, name) for name in names if not name.startswith('.')]
