"""Reads a folder with a sub-folder of images for each class, and divides it into three splits."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from cifar10.core import files, logs
from cifar10.core.errors import InputError, StorageError
from cifar10.core.logs import log, one_line
from cifar10.data import info, manifest
from cifar10.data.build.sources import ImageSource, SplitExamples
from cifar10.data.image_files import read_ahead, read_image
from cifar10.data.info import IMAGE_BYTES

DEFAULT_SPLIT = (0.8, 0.1, 0.1)  # Train, validation, eval.


class ImageFolder(ImageSource):
  """A source of PNG and JPEG files: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE."""

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
    self._folder = folder
    self._name = os.path.basename(os.path.realpath(folder)) if name is None else name
    if not info.is_name(self._name):
      raise InputError(f'--name is {self._name!r}: it must be text in one line')
    self._seed = seed
    self._listed = _read_folder(folder)
    self._paths = [
      path for classes in self._listed.values() for paths in classes.values() for path in paths
    ]
    self._digest = digest(folder, self._paths)
    self._split, self._held_out = _shares(folder, split, self._listed)
    for class_name, paths in self._listed['train'].items():
      _check_size(class_name, len(paths), self._held_out)
    self._scratch: IO[bytes] | None = None  # All images, scaled down, one after the other.
    self._splits: dict[str, list[tuple[int, int]]] = {}  # Indices in the scratch file, and labels.
    self._num_unreadable = 0

  @property
  def identity(self) -> dict[str, Any]:
    """Returns the manifest's entry; it names files and sizes, since reading all is slow."""
    divided = {'split': list(self._split)} if self._split else {}
    return {
      'name': self._name,
      'source': 'images',
      **divided,
      'seed': self._seed,
      'files': len(self._paths),
      'listing_sha256': self._digest,
    }

  @property
  def flags(self) -> list[str]:
    """Returns the flags that select this source on the command line."""
    split = ['--split', ','.join(map(str, self._split))] if self._split else []
    folder = os.path.abspath(self._folder)
    return ['--images', folder, '--name', self._name, *split, '--seed', str(self._seed)]

  @contextlib.contextmanager
  def open(self, data_dir: str) -> Iterator[tuple[str, ...]]:
    """Reads and scales all images into an anonymous file, and divides them into the splits.

    Only readable images are divided, so that each split gets images of every class.

    Raises:
      InputError: of a class no image is readable, or too few.
      StorageError: a file is there no more, or the storage does not give it.
    """
    rng = np.random.default_rng(self._seed)
    self._num_unreadable = 0
    disk = None if files.is_url(data_dir) else data_dir
    with tempfile.TemporaryFile(dir=disk) as self._scratch:
      parts = self._read_into(self._scratch)
      parts.update(_divided(parts['train'], self._held_out, rng))
      self._splits = {split: _shuffled(parts[split], rng) for split in manifest.SPLITS}
      yield tuple(self._listed['train'])

  def examples(self, split: str) -> SplitExamples:
    """Returns the examples of a split, which are read from the scratch file one by one."""
    return SplitExamples(len(self._splits[split]), self._each(split))

  def remarks(self) -> dict[str, Any]:
    """Returns how many files could not be read."""
    return {'unreadable': self._num_unreadable}

  def _each(self, split: str) -> Iterator[tuple[np.ndarray, int]]:
    assert self._scratch  # `open` has set it.
    for place, label in self._splits[split]:
      self._scratch.seek(place * IMAGE_BYTES)
      yield np.frombuffer(self._scratch.read(IMAGE_BYTES), np.uint8), label

  def _read_into(self, scratch: IO[bytes]) -> dict[str, dict[str, list[int]]]:
    """Appends all readable images; returns their indices by split and class."""
    paths = self._paths
    places: dict[str, int] = {}
    with logs.bar(total=len(paths), unit=' images', desc='read') as bar:
      for path, image in zip(paths, read_ahead(_read, paths)):
        bar.update()
        if isinstance(image, str):
          self._num_unreadable += 1
          if self._num_unreadable <= MOST_NAMED:
            log.info('left out: %s', image)
        else:
          scratch.write(image.tobytes())
          places[path] = len(places)
    if self._num_unreadable > MOST_NAMED:
      log.info('and %s files more cannot be read', self._num_unreadable - MOST_NAMED)
    if not places:
      raise InputError(
        f'none of the {len(paths)} files in {self._folder} can be read as PNG or JPEG; convert them'
      )
    return {
      split: {name: _readable(name, files, places) for name, files in classes.items()}
      for split, classes in self._listed.items()
    }


def _read(path: str) -> np.ndarray | str:
  """Returns an image as planes R, G, B, uint8 [3072], or why it is none.

  Raises:
    StorageError: as `open`.
  """
  try:
    image, _ = read_image(path)
  except InputError as error:
    if not os.path.lexists(path):  # It was listed.
      raise StorageError(f'image {path} has vanished; put it back, and run again') from None
    return str(error)
  return image.transpose(2, 0, 1).reshape(-1)


def _readable(name: str, paths: Sequence[str], places: Mapping[str, int]) -> list[int]:
  """Returns the indices of a class's files; raises InputError if none is readable."""
  if not any(path in places for path in paths):
    raise InputError(
      f'none of the {len(paths)} files of class {name} in {os.path.dirname(paths[0])} can be read '
      'as PNG or JPEG; convert them, or remove the class'
    )
  return [places[path] for path in paths if path in places]


def _shares(
  folder: str, split: Sequence[float] | None, listed: Mapping[str, Any]
) -> tuple[Sequence[float] | None, dict[str, float]]:
  """Returns --split, and the shares of `train` that go to other splits.

  If folders divide the images, these are None and {}, and --split raises InputError.
  """
  if 'validation' in listed:
    if split:
      raise InputError(
        f'--split {",".join(map(str, split))} has no use: {folder} has a train, a validation and '
        'an eval folder; leave it out'
      )
    return None, {}
  split = split or DEFAULT_SPLIT
  train, validation, evaluation = split
  if 'eval' in listed:
    log.info('there is no validation folder: taking some images of train')
    return split, {'validation': validation / (train + validation)}
  return split, {'validation': validation, 'eval': evaluation}


def _divided(
  classes: Mapping[str, Sequence[int]], held_out: Mapping[str, float], rng: np.random.Generator
) -> dict[str, dict[str, list[int]]]:
  """Divides each class's images at random between `train` and the splits held out of it.

  Each held-out split gets its share of every class, rounded, at least one image; train the rest.

  Raises:
    InputError: no image of a class is left for train.
  """
  parts: dict[str, dict[str, list[int]]] = {name: {} for name in ('train', *held_out)}
  for name, images in classes.items():
    _check_size(name, len(images), held_out)
    left = [images[index] for index in rng.permutation(len(images))]
    for split, share in held_out.items():
      count = _share(len(images), share)
      parts[split][name], left = left[:count], left[count:]
    parts['train'][name] = left
  return parts


def _share(count: int, share: float) -> int:
  return max(1, int(count * share + 0.5))


def _check_size(name: str, count: int, held_out: Mapping[str, float]) -> None:
  """Raises InputError if a class of this size would leave no image for train."""
  if count <= sum(_share(count, share) for share in held_out.values()):
    raise InputError(
      f'class {name} has {count} images, too few for train, {", ".join(held_out)}; add images or '
      'change --split'
    )


def _shuffled(
  classes: Mapping[str, Sequence[int]], rng: np.random.Generator
) -> list[tuple[int, int]]:
  """Returns all images with labels in random order, so that the first ones show all classes."""
  labelled = [(image, label) for label, images in enumerate(classes.values()) for image in images]
  return [labelled[index] for index in rng.permutation(len(labelled))]


MOST_NAMED = 20  # Unreadable files that the log names, and as many of those in no class.


def digest(folder: str, paths: Sequence[str]) -> str:
  """Returns the SHA-256 of all names and sizes of files."""
  sha256 = hashlib.sha256()
  for path in sorted(paths):
    size = os.path.getsize(path) if os.path.exists(path) else -1
    sha256.update(os.fsencode(f'{os.path.relpath(path, folder)}\0{size}\n'))
  return sha256.hexdigest()


def _holds_splits(folder: str) -> bool:
  """Tells whether the sub-folders are splits: a class may have the name `train`, too."""
  names = _sub_folders(folder)
  return set(names) <= set(manifest.SPLITS) and any(
    _sub_folders(os.path.join(folder, name)) for name in names
  )


def _read_folder(folder: str) -> dict[str, dict[str, list[str]]]:
  """Returns the files by split and class, sorted; all are `train` if no sub-folders are splits.

  Raises:
    InputError: train or eval is missing, or classes differ, are too few, empty or hold folders.
  """
  if not _holds_splits(folder):
    return {'train': _read_classes(folder)}
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
  """Raises InputError if a split's classes differ from the training split's."""
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
  """Returns sub-folders with their files; raises InputError for fewer than two, or an empty one."""
  names = _sub_folders(folder)
  if len(names) < info.LEAST_CLASSES:
    raise InputError(
      f'{folder} has {len(names)} sub-folders: give each class one of its own, two at least'
    )
  info.check_classes(names, folder)
  beside = sorted(set(_visible(folder)) - set(names))
  for name in beside[:MOST_NAMED]:
    log.info('%s lies in no class: left out', one_line(os.path.join(folder, name)))
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
  """Returns names without hidden files, sorted: the order of a file system is its own."""
  try:
    return sorted(name for name in os.listdir(folder) if not name.startswith('.'))
  except OSError as error:
    raise InputError(
      f'--images: {folder} cannot be listed ({error.strerror}); name a folder with one for each '
      'class'
    ) from None
