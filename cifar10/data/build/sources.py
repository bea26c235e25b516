"""The published archives, or synthetic batches in their place, as a source of records."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

from cifar10.core import files
from cifar10.data import info
from cifar10.data.build import archive, synthetic
from cifar10.data.build.archive import CIFAR10, Example, Published


@dataclasses.dataclass
class ArchiveSource:
  """A published archive, from any place, or synthetic batches of the same format."""

  published: Published = CIFAR10  # The kind of archive.
  labels: str = 'fine'  # The kind of labels.
  _: dataclasses.KW_ONLY
  path: str | None = None  # The archive or the unpacked folder; None: in the data dir, or fetched.
  url: str | None = None  # The address to download from; None: the original one.
  synthetic_images: int | None = None  # Generates this many images a batch instead.
  seed: int = 0  # The random seed of synthetic images.
  folder: str = dataclasses.field(default='', init=False)  # Of the batches, after `open`.

  @property
  def identity(self) -> dict[str, Any]:
    """The manifest's entry on the source; equal entries mean equal records."""
    name = self.published.labels[self.labels].name
    if self.synthetic_images is None:
      return {'name': name, 'source': 'published'}
    made = {'images_per_batch': self.synthetic_images, 'seed': self.seed}
    return {'name': name, 'source': 'synthetic', **made}

  @property
  def flags(self) -> list[str]:
    """The flags that select this source on the command line, without defaults."""
    values = {
      '--dataset': None if self.published is CIFAR10 else self.published.name,
      '--labels': None if self.labels == 'fine' else self.labels,
      '--archive': self.path and files.absolute(self.path),
      '--synthetic': self.synthetic_images,
      '--seed': self.seed or None,
    }
    return [
      word for flag, value in values.items() if value is not None for word in (flag, f'{value}')
    ]

  @property
  def description(self) -> info.DatasetInfo | None:
    """CIFAR-10's, with the published (rounded) means and deviations; None: nothing is known."""
    return info.CIFAR10 if self.published is CIFAR10 else None

  def open(self, data_dir: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Makes, finds or downloads the batches.

    Returns:
      The names of the classes, and more entries for the manifest: none.

    Raises:
      InputError: the archive cannot be had, or is damaged, or another one.
    """
    published = self.published
    if self.synthetic_images is None:
      self.folder = archive.download_and_extract(
        data_dir, published=published, archive=self.path, url=self.url
      )
    else:
      self.folder = synthetic.write_synthetic(data_dir, self.synthetic_images, self.seed, published)
    if published is CIFAR10:
      return info.CIFAR10.classes, {}
    names = os.path.join(self.folder, published.names_member)
    return archive.read_names(names, published.labels[self.labels]), {}

  def files(self, split: str) -> list[str]:
    """The batches of a split."""
    return [os.path.join(self.folder, name) for name in self.published.members[split]]

  def read(self, split: str, input_files: Sequence[str]) -> Iterator[Example]:
    """Yields the split's examples; where one batch holds two splits, those of this one."""
    members = self.published.members
    is_shared = split != 'eval' and members['train'] == members['validation']
    labels = self.published.labels[self.labels]
    return archive.read_batches(input_files, labels, split if is_shared else 'all')
