"""Sources of images for record files, and which files of a data dir are to be made from one."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import info, manifest
from cifar10.data.build import archive, download, synthetic


class SplitExamples(NamedTuple):
  """The examples of one split, to be written as they come."""

  total: int
  each: Iterator[tuple[np.ndarray, int]]  # Image uint8 [3072], planes R, G, B; label.


class ImageSource(Protocol):
  """Images and labels for the three splits."""

  @property
  def identity(self) -> dict[str, Any]:
    """What the manifest says of the source: equal for equal records, whatever path they come by."""

  @property
  def flags(self) -> list[str]:
    """The flags that name the source on the command line."""

  @property
  def description(self) -> info.DatasetInfo | None:
    """What is known of the data set without reading it."""

  def open(self, data_dir: str) -> contextlib.AbstractContextManager[tuple[str, ...]]:
    """A context with the classes in which the examples can be read; raises InputError."""

  def examples(self, split: str) -> SplitExamples:
    """The examples of a split, while the source is open; raises InputError."""

  def remarks(self) -> dict[str, Any]:
    """What else the manifest says, known only when all was read."""


class ArchiveSource:
  """A published archive, wherever it is, or a synthetic one of its format."""

  def __init__(
    self,
    published: archive.Published,
    labels: str = 'fine',
    *,
    path: str | None = None,
    url: str | None = None,
    synthetic_images: int | None = None,
    seed: int = 0,
  ):
    """Names it; nothing is fetched yet.

    Args:
      published: which.
      labels: which of its labels.
      path: the archive or the unpacked folder; by default one in the data dir, or else the
        published one.
      url: where it is published, if not where it used to be.
      synthetic_images: generate so many a batch instead.
      seed: of the synthetic ones.
    """
    self._published = published
    self._labels = labels
    self._path = path
    self._url = url or published.url
    self._synthetic_images = synthetic_images
    self._seed = seed
    self._archive: archive.Archive | None = None
    self._num_classes = 0

  @property
  def identity(self) -> dict[str, Any]:
    """The data set's name, and which archive it is: published or synthetic."""
    name = self._published.labels[self._labels].name
    if self._synthetic_images is None:
      return {'name': name, 'source': 'published'}
    return {
      'name': name,
      'source': 'synthetic',
      'images_per_batch': self._synthetic_images,
      'seed': self._seed,
    }

  @property
  def flags(self) -> list[str]:
    """The flags that name the source on the command line, where they are not the defaults."""
    [dataset] = [name for name, known in archive.PUBLISHED.items() if known is self._published]
    flags = [] if self._published is archive.CIFAR10 else ['--dataset', dataset]
    if self._labels != 'fine':
      flags += ['--labels', self._labels]
    if self._path:
      flags += ['--archive', files.absolute(self._path)]
    if self._synthetic_images is not None:
      flags += ['--synthetic', str(self._synthetic_images)]
    return flags + (['--seed', str(self._seed)] if self._seed else [])

  @property
  def description(self) -> info.DatasetInfo | None:
    """CIFAR-10's, with the means and deviations that others publish; computed ones are longer."""
    return self._published.description

  @contextlib.contextmanager
  def open(self, data_dir: str) -> Iterator[tuple[str, ...]]:
    """Makes, finds or downloads the archive; a context with the classes."""
    path, digests = self._found(data_dir)
    self._archive = archive.Archive(path, self._published, digests, self._labels)
    classes = self._archive.classes()
    self._num_classes = len(classes)
    yield classes

  def examples(self, split: str) -> SplitExamples:
    """The examples of a split, all of them in memory."""
    assert self._archive  # It was opened.
    images, labels = self._archive.read_split(split, self._num_classes)
    return SplitExamples(len(labels), zip(images, map(int, labels)))

  def remarks(self) -> dict[str, Any]:
    """Nothing: an archive has all its examples, or is refused."""
    return {}

  def _found(self, data_dir: str) -> tuple[str, dict[str, str]]:
    """The archive to read, made or downloaded if need be, and its members' digests."""
    published = self._published
    if self._synthetic_images is not None:
      path = os.path.join(data_dir, published.synthetic_name)
      files.remove_unfinished(path)
      digests = synthetic.write_synthetic(path, self._synthetic_images, self._seed, published)
      log.info('made %s: %s images a batch', path, f'{self._synthetic_images:,}')
      return path, digests
    path = self._path or _local_archive(data_dir, published)
    if not path:
      path = os.path.join(data_dir, published.file_name)
      log.info('downloading %s', self._url)
      _download(self._url, path)
    return path, dict(published.digests)


def missing_splits(data_dir: str, source: ImageSource) -> tuple[str, ...]:
  """The splits to make: those that are not there or not intact.

  Raises:
    InputError: the folder holds records of another source, or an older program's without a
      manifest, which would be overwritten.
  """
  content = manifest.read_manifest(data_dir)
  if content is None:
    if any(files.exists(manifest.record_path(data_dir, s)) for s in manifest.SPLITS):
      raise InputError(
        f'{data_dir} holds record files without a manifest, which can be trained on as they are; '
        '--force replaces them'
      )
    return manifest.SPLITS
  _check_same(data_dir, content, source)
  entries = content.get('subsets', {})
  return tuple(
    s for s in manifest.SPLITS if s not in entries or not _intact(data_dir, s, entries[s])
  )


def _check_same(data_dir: str, content: dict[str, Any], source: ImageSource) -> None:
  """Raises InputError where the records there were made from another source."""
  there = {'name': info.CIFAR10.name, **content}  # Format 1 has no names.
  differing = [
    f'{key} is {there.get(key)} there and {value} here'
    for key, value in source.identity.items()
    if there.get(key) != value
  ]
  if differing:
    raise InputError(
      f'{data_dir} holds other records: {"; ".join(differing)}; name another --data-dir, or '
      '--force to replace them'
    )


def _intact(data_dir: str, split: str, entry: dict[str, Any]) -> bool:
  path = manifest.record_path(data_dir, split)
  if not files.exists(path):
    log.info('%s is missing: making it again', path)
    return False
  if files.size(path) != entry['bytes'] or manifest.file_digest(path) != entry['sha256']:
    log.info('%s is damaged: making it again', path)
    return False
  return True


def _local_archive(data_dir: str, published: archive.Published) -> str:
  """The archive or the unpacked folder in the data dir; empty where there is none."""
  for name in (published.file_name, published.folder):
    if files.exists(path := os.path.join(data_dir, name)):
      return path
  return ''


def _download(url: str, path: str) -> None:
  """To a local path it goes on where it was interrupted; to a URL it goes by way of a local one."""
  if not files.is_url(path):
    download.download(url, path)
    return
  with files.replacing(path) as temporary:
    download.download(url, temporary)
