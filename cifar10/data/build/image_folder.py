"""A folder with a sub-folder of images for each class, and how they come to the three splits."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

import numpy as np
from tqdm.contrib.logging import logging_redirect_tqdm

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import info, manifest
from cifar10.data.build.sources import SplitExamples
from cifar10.data.image_files import read_ahead
from cifar10.data.info import IMAGE_BYTES

DEFAULT_SPLIT = (0.8, 0.1, 0.1)  # Train, validation, eval.

Image = TypeVar('Image')  # However one image is known: by its path, by its place in a file.


class ImageFolder:
  """A source of PNG and JPEG files: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE."""

  def __init__(
    self,
    folder: str,
    name: str | None = None,
    split: Sequence[float] | None = None,
    seed: int = 0,
  ):
    """Lists the files; reads none yet.

    Args:
      folder: has a sub-folder for each class; or `train`, `eval` and perhaps `validation` with
        those in them.
      name: of the data set; by default the folder's.
      split: how much train, validation and eval get, which is 1 together. Of train and eval
        folders alone, train is divided into train and validation as the two stand to each other.
      seed: of the division and of the order.

    Raises:
      InputError: the folder is not like that, or a class is too small to be divided.
    """
    self._folder = folder
    self._name = os.path.basename(os.path.realpath(folder)) if name is None else name
    if not info.is_name(self._name):
      raise InputError(f'--name is {self._name!r}: it must be text in one line')
    self._seed = seed
    self._listed = read_folder(folder)
    self._paths = [
      path for classes in self._listed.values() for paths in classes.values() for path in paths
    ]
    self._digest = digest(folder, self._paths)
    self._split = _check_split(folder, split, self._listed)
    self._held_out = _held_out(self._split, self._listed)
    for class_name, paths in self._listed['train'].items():
      _check_size(class_name, len(paths), self._held_out)
    self._scratch: IO[bytes] | None = None  # The images made small, one behind the other.
    self._splits: dict[str, list[tuple[int, int]]] = {}  # Places in there, and labels.
    self._num_unreadable = 0

  @property
  def identity(self) -> dict[str, Any]:
    """What the manifest says; images are known by name and size, as reading all takes long."""
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
    """The flags that name the source on the command line."""
    split = ['--split', ','.join(map(str, self._split))] if self._split else []
    folder = os.path.abspath(self._folder)
    return ['--images', folder, '--name', self._name, *split, '--seed', str(self._seed)]

  @property
  def description(self) -> None:
    """Nothing is known of the data set before the images are read."""

  @contextlib.contextmanager
  def open(self, data_dir: str) -> Iterator[tuple[str, ...]]:
    """Reads all images, small, into a file without a name, and divides them among the splits.

    Only what can be read is divided, so that each class comes to every split.

    Raises:
      InputError: none of a class can be read, or too few to be divided.
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
    """The examples of a split, read from that file one by one."""
    return SplitExamples(len(self._splits[split]), self._each(split))

  def remarks(self) -> dict[str, Any]:
    """How many files could not be read."""
    return {'unreadable': self._num_unreadable}

  def _each(self, split: str) -> Iterator[tuple[np.ndarray, int]]:
    assert self._scratch  # It was opened.
    for place, label in self._splits[split]:
      self._scratch.seek(place * IMAGE_BYTES)
      yield np.frombuffer(self._scratch.read(IMAGE_BYTES), np.uint8), label

  def _read_into(self, scratch: IO[bytes]) -> dict[str, dict[str, list[int]]]:
    """Appends every image that can be read -> by split and class, which ones they are there."""
    paths = self._paths
    places: dict[str, int] = {}
    with logging_redirect_tqdm(), logs.bar(total=len(paths), unit=' images', desc='read') as bar:
      for path, image in zip(paths, read_ahead(_read, paths)):
        bar.update()
        if image is None:
          self._leave_out(path)
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

  def _leave_out(self, path: str) -> None:
    self._num_unreadable += 1
    if self._num_unreadable <= MOST_NAMED:
      log.info('%s cannot be read as PNG or JPEG: left out', shown(path))


def _read(path: str) -> np.ndarray | None:
  """An image as planes R, G, B, uint8 [3072]; None where that is impossible."""
  # It needs TensorFlow, and listing a folder, or refusing to, should not wait for that.
  from cifar10.data import image_files  # noqa: PLC0415

  try:
    image, _ = image_files.read_image(path)
  except InputError:
    return None
  return image.transpose(2, 0, 1).reshape(-1)


def _readable(name: str, paths: Sequence[str], places: Mapping[str, int]) -> list[int]:
  """The places of a class's files; raises InputError where it has none left."""
  if not any(path in places for path in paths):
    raise InputError(
      f'none of the {len(paths)} files of class {name} in {os.path.dirname(paths[0])} can be read '
      'as PNG or JPEG; convert them, or remove the class'
    )
  return [places[path] for path in paths if path in places]


def _check_split(
  folder: str, split: Sequence[float] | None, listed: Mapping[str, Any]
) -> Sequence[float] | None:
  """What divides the images; None where folders do; raises InputError where both would."""
  if 'validation' not in listed:
    return split or DEFAULT_SPLIT
  if split:
    raise InputError(
      f'--split {",".join(map(str, split))} has no use: {folder} has a train, a validation and an '
      'eval folder; leave it out'
    )
  return None


def _held_out(split: Sequence[float] | None, listed: Mapping[str, Any]) -> dict[str, float]:
  """Which part of `train` goes to which other split."""
  if split is None:
    return {}
  train, validation, evaluation = split
  if 'eval' in listed:
    log.info('there is no validation folder: taking some images of train')
    return {'validation': validation / (train + validation)}
  return {'validation': validation, 'eval': evaluation}


def _divided(
  classes: Mapping[str, Sequence[Image]], held_out: Mapping[str, float], rng: np.random.Generator
) -> dict[str, dict[str, list[Image]]]:
  """Each class's images at random to `train` and to the splits that are held out of it.

  Each of these gets its share of every class, rounded, but one image at least; train the rest.

  Raises:
    InputError: nothing of a class is left for train.
  """
  parts: dict[str, dict[str, list[Image]]] = {name: {} for name in ('train', *held_out)}
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
  """Raises InputError where nothing of a class with so many images would be left for train."""
  if count <= sum(_share(count, share) for share in held_out.values()):
    raise InputError(
      f'class {name} has {count} images, too few for train, {", ".join(held_out)}; add images or '
      'change --split'
    )


def _shuffled(
  classes: Mapping[str, Sequence[Image]], rng: np.random.Generator
) -> list[tuple[Image, int]]:
  """All images with their labels: also who reads only the first ones meets every class."""
  labelled = [(image, label) for label, images in enumerate(classes.values()) for image in images]
  return [labelled[index] for index in rng.permutation(len(labelled))]


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
  return set(names) <= set(manifest.SPLITS) and any(
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
  if len(names) < info.LEAST_CLASSES:
    raise InputError(
      f'{folder} has {len(names)} sub-folders: give each class one of its own, two at least'
    )
  info.check_classes(names, folder)
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
