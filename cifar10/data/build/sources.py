"""Sources of images for record files, and the choice of the files to make from one."""

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
  """The examples of one split, for writing one by one."""

  total: int
  each: Iterator[tuple[np.ndarray, int]]  # Pairs of image, uint8 [3072], planes R, G, B, and label.


class ImageSource(Protocol):
  """A source of images and labels for the three splits."""

  @property
  def identity(self) -> dict[str, Any]:
    """Returns the manifest's entry on the source; equal entries mean equal records."""

  @property
  def flags(self) -> list[str]:
    """Returns the flags that select this source on the command line."""

  @property
  def description(self) -> info.DatasetInfo | None:
    """Returns what is known of the data set without reading it; None: nothing."""
    return None

  def open(self, data_dir: str) -> contextlib.AbstractContextManager[tuple[str, ...]]:
    """Opens the source for `examples` in a context that gives the classes; raises InputError."""

  def examples(self, split: str) -> SplitExamples:
    """Returns the examples of a split while the source is open; raises InputError."""

  def remarks(self) -> dict[str, Any]:
    """Returns more entries for the manifest, known only after everything was read."""
    return {}  # As of an archive: one with missing examples is refused.


class ArchiveSource(ImageSource):
  """A published archive, from any place, or a synthetic archive of the same format."""

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
    """Selects the archive, without fetching it.

    Args:
      published: the kind of archive.
      labels: the kind of labels.
      path: the archive or the unpacked folder; default: the one in the data dir, else it is
        downloaded.
      url: the address to download from; default: the original one.
      synthetic_images: generates this many images a batch instead.
      seed: random seed of synthetic images.
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
    """Returns the data set's name and the kind of archive: published or synthetic."""
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
    """Returns the flags that select this source on the command line, without defaults."""
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
    """Returns CIFAR-10's description with published (rounded) means and deviations, or None."""
    return self._published.description

  @contextlib.contextmanager
  def open(self, data_dir: str) -> Iterator[tuple[str, ...]]:
    """Makes, finds or downloads the archive in a context that gives the classes."""
    path, digests = self._found(data_dir)
    self._archive = archive.Archive(path, self._published, digests, self._labels)
    classes = self._archive.classes()
    self._num_classes = len(classes)
    yield classes

  def examples(self, split: str) -> SplitExamples:
    """Returns the examples of a split, all in memory."""
    assert self._archive  # `open` has set it.
    images, labels = self._archive.read_split(split, self._num_classes)
    return SplitExamples(len(labels), zip(images, map(int, labels)))

  def _found(self, data_dir: str) -> tuple[str, dict[str, str]]:
    """Returns the archive to read, made or downloaded if needed, and its members' digests."""
    published = self._published
    if self._synthetic_images is not None:
      path = os.path.join(data_dir, published.file_name.replace('-python', '-synthetic'))
      files.remove_unfinished(path)
      digests = synthetic.write_synthetic(path, self._synthetic_images, self._seed, published)
      log.info('made %s: %s images a batch', path, f'{self._synthetic_images:,}')
      return path, digests
    there = [os.path.join(data_dir, name) for name in (published.file_name, published.folder)]
    path = self._path or next(filter(files.exists, there), '')
    if not path:
      path = os.path.join(data_dir, published.file_name)
      log.info('downloading %s', self._url)
      # A local download resumes beside its path; one for a URL is made elsewhere and copied.
      is_url = files.is_url(path)
      with files.replacing(path) if is_url else contextlib.nullcontext(path) as local:
        download.download(self._url, local)
    elif self._url != published.url:
      log.info('%s is there: it is read, and --url %s is not', path, self._url)
    return path, dict(published.digests)


def missing_splits(data_dir: str, source: ImageSource) -> tuple[str, ...]:
  """Returns the splits whose files are missing or damaged.

  Raises:
    InputError: the folder has records of another source, or records without a manifest (by an
      older program), which would be overwritten.
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
  """Raises InputError if the existing records were made from another source."""
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
