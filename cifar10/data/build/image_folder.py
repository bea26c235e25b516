"""Reads a folder with a sub-folder of images for each class, and divides it into three splits."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log, one_line
from cifar10.data import info, manifest
from cifar10.data.build.archive import Example, Opened
from cifar10.data.info import IMAGE_BYTES

DEFAULT_SPLIT = (0.8, 0.1, 0.1)  # Train, validation, eval.
MOST_NAMED = 20  # Unreadable files that the log names.

Classes = dict[str, list[str]]  # The paths of each class's images.


class ImageFolder:
  """A source of PNG, JPEG and WebP files: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE."""

  def __init__(
    self, folder: str, name: str | None = None, split: Sequence[float] | None = None, seed: int = 0
  ):
    """Lists the files without reading any.

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
    self._folder, self._seed = folder, seed
    name = os.path.basename(os.path.realpath(folder)) if name is None else name
    if not info.is_name(name):
      raise InputError(f'--name is {name!r}: it must be text in one line')
    self._listed = _list_splits(folder)
    if split and 'validation' in self._listed:
      raise InputError(
        f'--split {",".join(map(str, split))} has no use: {folder} has a train, a validation and '
        'an eval folder; leave it out'
      )
    train, validation, evaluation = split or DEFAULT_SPLIT
    if 'validation' in self._listed:
      self._held_out: dict[str, float] = {}  # The shares of train that go to other splits.
    elif 'eval' in self._listed:
      log.info('there is no validation folder: taking some images of train')
      self._held_out = {'validation': validation / (train + validation)}
    else:
      self._held_out = {'validation': validation, 'eval': evaluation}
    _divided(self._listed['train'], self._held_out, np.random.default_rng(0))  # Or it refuses.
    divided = [train, validation, evaluation] if self._held_out else []
    self._paths = [
      path for classes in self._listed.values() for paths in classes.values() for path in paths
    ]
    self.identity: dict[str, Any] = {  # Names and sizes of files, since reading all is slow.
      'name': name,
      'source': 'images',
      **({'split': divided} if divided else {}),
      'seed': seed,
      'files': len(self._paths),
      'listing_sha256': _listing_digest(folder, self._paths),
    }
    self.flags = ['--images', os.path.abspath(folder), '--name', name]
    self.flags += ['--split', ','.join(map(str, divided))] if divided else []
    self.flags += ['--seed', str(seed)]
    self.description: info.DatasetInfo | None = None

  def open(self, data_dir: str) -> Opened:
    """Reads and scales all images, and divides them into the splits.

    Only readable images are divided, so that each split gets images of every class.

    Raises:
      InputError: of a class no image is readable, or too few.
      StorageError: the storage does not give a file.
    """
    indices, scaled = self._read_all(None if files.is_url(data_dir) else data_dir)
    parts: dict[str, Classes] = {}
    for split, classes in self._listed.items():
      parts[split] = {name: [p for p in paths if p in indices] for name, paths in classes.items()}
    rng = np.random.default_rng(self._seed)
    parts.update(_divided(parts['train'], self._held_out, rng))
    labels = {
      path: label
      for classes in parts.values()
      for label, paths in enumerate(classes.values())
      for path in paths
    }

    def read(input_files: Sequence[str]) -> Iterator[Example]:
      for path in input_files:
        yield scaled[indices[path]], labels[path]

    splits = {}
    for split in manifest.SUBSETS:
      images = [path for paths in parts[split].values() for path in paths]
      # In random order, so that the first ones show all classes.
      splits[split] = ([images[index] for index in rng.permutation(len(images))], read)
    unreadable = len(self._paths) - len(indices)
    return Opened(tuple(self._listed['train']), splits, {'unreadable': unreadable})

  def _read_all(self, scratch_dir: str | None) -> tuple[dict[str, int], np.ndarray]:
    """Returns all images that can be read, uint8 [n, 3072], in a file without a name.

    With their indices, by path.
    """
    from cifar10.data import image_files  # noqa: PLC0415  (TensorFlow, as in writer.py)

    def read(path: str) -> np.ndarray | str:
      try:
        return image_files.read_image(path)[0]
      except InputError as error:
        return str(error)

    indices: dict[str, int] = {}
    with tempfile.TemporaryFile(dir=scratch_dir) as scratch:
      images = image_files.read_ahead(read, self._paths)
      with logs.bar(images, total=len(self._paths), unit=' images', desc='read') as shown:
        for number, (path, image) in enumerate(zip(self._paths, shown)):
          if isinstance(image, np.ndarray):
            indices[path] = len(indices)
            scratch.write(image.transpose(2, 0, 1).tobytes())  # As planes R, G, B.
          elif number - len(indices) < MOST_NAMED:
            log.info('left out: %s', image)
      scratch.flush()
      unreadable = len(self._paths) - len(indices)
      if unreadable > MOST_NAMED:
        log.info('and %s files more cannot be read', unreadable - MOST_NAMED)
      for name, paths in (pair for classes in self._listed.values() for pair in classes.items()):
        if not any(path in indices for path in paths):
          raise InputError(
            f'none of the {len(paths)} files of class {name} in {os.path.dirname(paths[0])} can '
            'be read as an image; convert them to PNG, JPEG or WebP, or remove the class'
          )
      return indices, np.memmap(scratch, np.uint8, 'r').reshape(-1, IMAGE_BYTES)


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
  if missing := {'train', 'eval'} - set(names):
    raise InputError(
      f'{folder} has the folder {names[0]} but not {missing.pop()}; add it, or put the classes '
      f'straight into {folder}'
    )
  splits = {name: _list_classes(os.path.join(folder, name)) for name in names}
  for name, classes in splits.items():
    if differing := sorted(set(classes) ^ set(splits['train'])):
      raise InputError(
        f'{folder}/{name} has other classes than train: {", ".join(map(repr, differing))} in one '
        'of them alone; give each split the same'
      )
  return splits


def _list_classes(folder: str) -> Classes:
  """Returns sub-folders with their files; raises InputError for fewer than two, or an empty one."""
  names = _sub_folders(folder)
  if len(names) < info.LEAST_CLASSES:
    raise InputError(
      f'{folder} has {len(names)} sub-folders: give each class one of its own, two at least'
    )
  info.check_classes(names, folder)
  if beside := sorted(set(_visible(folder)) - set(names)):
    where = one_line(os.path.join(folder, beside[0]))
    log.info('left out: %s, and %d more in no class', where, len(beside) - 1)
  classes = {name: _visible(os.path.join(folder, name)) for name in names}
  for name, images in classes.items():
    if nested := _sub_folders(os.path.join(folder, name)):
      raise InputError(
        f'{folder}/{name} holds the folder {nested[0]!r}: images lie straight in their class; only '
        'train, validation and eval may hold classes'
      )
    if not images:
      raise InputError(f'{folder}/{name} holds no images; add some or remove it')
  return {name: [os.path.join(folder, name, image) for image in classes[name]] for name in names}


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
