"""Sources of images for record files, and the choice of the files to make from one."""

import contextlib
import dataclasses
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


@dataclasses.dataclass(eq=False)
class ArchiveSource(ImageSource):
  """A published archive, from any place, or a synthetic archive of the same format."""

  published: archive.Published  # The kind of archive.
  labels: str = 'fine'  # The kind of labels.
  _: dataclasses.KW_ONLY
  path: str | None = None  # The archive or the unpacked folder; None: in the data dir, or fetched.
  url: str | None = None  # The address to download from; None: the original one.
  synthetic_images: int | None = None  # Generates this many images a batch instead.
  seed: int = 0  # The random seed of synthetic images.
  _archive: archive.Archive | None = dataclasses.field(default=None, init=False)
  _num_classes: int = dataclasses.field(default=0, init=False)

  @property
  def identity(self) -> dict[str, Any]:
    """Returns the data set's name and the kind of archive: published or synthetic."""
    name = self.published.labels[self.labels].name
    if self.synthetic_images is None:
      return {'name': name, 'source': 'published'}
    return {
      'name': name,
      'source': 'synthetic',
      'images_per_batch': self.synthetic_images,
      'seed': self.seed,
    }

  @property
  def flags(self) -> list[str]:
    """Returns the flags that select this source on the command line, without defaults."""
    [dataset] = [name for name, known in archive.PUBLISHED.items() if known is self.published]
    flags = [] if self.published is archive.CIFAR10 else ['--dataset', dataset]
    if self.labels != 'fine':
      flags += ['--labels', self.labels]
    if self.path:
      flags += ['--archive', files.absolute(self.path)]
    if self.synthetic_images is not None:
      flags += ['--synthetic', str(self.synthetic_images)]
    return flags + (['--seed', str(self.seed)] if self.seed else [])

  @property
  def description(self) -> info.DatasetInfo | None:
    """Returns CIFAR-10's description with published (rounded) means and deviations, or None."""
    return self.published.description

  @contextlib.contextmanager
  def open(self, data_dir: str) -> Iterator[tuple[str, ...]]:
    """Makes, finds or downloads the archive in a context that gives the classes."""
    path, digests = self._found(data_dir)
    self._archive = archive.Archive(path, self.published, digests, self.labels)
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
    published, url = self.published, self.url or self.published.url
    if self.synthetic_images is not None:
      path = os.path.join(data_dir, published.file_name.replace('-python', '-synthetic'))
      files.remove_unfinished(path)
      digests = synthetic.write_synthetic(path, self.synthetic_images, self.seed, published)
      log.info('made %s: %s images a batch', path, f'{self.synthetic_images:,}')
      return path, digests
    there = [os.path.join(data_dir, name) for name in (published.file_name, published.folder)]
    path = self.path or next(filter(files.exists, there), '')
    if not path:
      path = os.path.join(data_dir, published.file_name)
      log.info('downloading %s', url)
      # A local download resumes beside its path; one for a URL is made elsewhere and copied.
      is_url = files.is_url(path)
      with files.replacing(path) if is_url else contextlib.nullcontext(path) as local:
        download.download(url, local)
    elif url != published.url:
      log.info('%s is there: it is read, and --url %s is not', path, url)
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
