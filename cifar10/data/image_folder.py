"""A folder with a sub-folder of images for each class, and how they come to the three splits."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

import numpy as np
import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from cifar10.data import data_set, listing, manifest
from cifar10.data.read_ahead import read_ahead
from cifar10.data.shape import IMAGE_BYTES
from cifar10.data.sources import Examples
from cifar10.platform import files
from cifar10.platform.errors import InputError
from cifar10.platform.logs import log

DEFAULT_SPLIT = (0.8, 0.1, 0.1)  # Train, validation, eval.

Image = TypeVar('Image')  # However one image is known: by its path, by its place in a file.


class ImageFolder:
  """A `Source` of PNG and JPEG files: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE."""

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
    if not data_set.is_name(self._name):
      raise InputError(f'--name is {self._name!r}: it must be text in one line')
    self._seed = seed
    self._listed = listing.read_folder(folder)
    self._paths = [
      path for classes in self._listed.values() for paths in classes.values() for path in paths
    ]
    self._digest = listing.digest(folder, self._paths)
    self._split = _check_split(folder, split, self._listed)
    self._held_out = _held_out(self._split, self._listed)
    for class_name, paths in self._listed['train'].items():
      _check_size(class_name, len(paths), self._held_out)
    self._scratch: IO[bytes] | None = None  # The images made small, one behind the other.
    self._splits: dict[str, list[tuple[int, int]]] = {}  # Places in there, and labels.
    self._num_unreadable = 0

  @property
  def identity(self) -> dict[str, Any]:
    """As `Source` says; the images are known by their names and sizes, reading all takes long."""
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
    """As `Source` says."""
    split = ['--split', ','.join(map(str, self._split))] if self._split else []
    folder = os.path.abspath(self._folder)
    return ['--images', folder, '--name', self._name, *split, '--seed', str(self._seed)]

  @property
  def description(self) -> None:
    """As `Source` says: nothing is known before the images are read."""

  @contextlib.contextmanager
  def open(self, data_dir: str) -> Iterator[tuple[str, ...]]:
    """As `Source` says: reads all images, small, into a file without a name, and divides them.

    Only what can be read is divided, so that each class comes to every split.

    Raises:
      InputError: none of a class can be read, or too few to be divided.
    """
    rng = np.random.default_rng(self._seed)
    self._num_unreadable = 0
    with files.scratch(data_dir) as self._scratch:
      parts = self._read_into(self._scratch)
      parts.update(_divided(parts['train'], self._held_out, rng))
      self._splits = {subset: _shuffled(parts[subset], rng) for subset in manifest.SUBSETS}
      yield tuple(self._listed['train'])

  def examples(self, subset: str) -> Examples:
    """As `Source` says."""
    return Examples(len(self._splits[subset]), self._each(subset))

  def remarks(self) -> dict[str, Any]:
    """As `Source` says: how many files could not be read."""
    return {'unreadable': self._num_unreadable}

  def _each(self, subset: str) -> Iterator[tuple[np.ndarray, int]]:
    assert self._scratch  # It was opened.
    for place, label in self._splits[subset]:
      self._scratch.seek(place * IMAGE_BYTES)
      yield np.frombuffer(self._scratch.read(IMAGE_BYTES), np.uint8), label

  def _read_into(self, scratch: IO[bytes]) -> dict[str, dict[str, list[int]]]:
    """Appends every image that can be read -> by split and class, which ones they are there."""
    paths = self._paths
    places: dict[str, int] = {}
    with logging_redirect_tqdm(), tqdm.tqdm(total=len(paths), unit=' images', desc='read') as bar:
      for path, image in zip(paths, read_ahead(_read, paths)):
        bar.update()
        if image is None:
          self._leave_out(path)
        else:
          scratch.write(image.tobytes())
          places[path] = len(places)
    if self._num_unreadable > listing.MOST_NAMED:
      log.info('and %s files more cannot be read', self._num_unreadable - listing.MOST_NAMED)
    if not places:
      raise InputError(
        f'none of the {len(paths)} files in {self._folder} can be read as PNG or JPEG; convert them'
      )
    return {
      subset: {name: _readable(name, files, places) for name, files in classes.items()}
      for subset, classes in self._listed.items()
    }

  def _leave_out(self, path: str) -> None:
    self._num_unreadable += 1
    if self._num_unreadable <= listing.MOST_NAMED:
      log.info('%s cannot be read as PNG or JPEG: left out', listing.shown(path))


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
    for subset, share in held_out.items():
      count = _share(len(images), share)
      parts[subset][name], left = left[:count], left[count:]
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
