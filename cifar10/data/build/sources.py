"""The published archives, or synthetic batches in their place, as a source of records."""

import dataclasses
import functools
import os
from typing import Any

from cifar10.core import files
from cifar10.data import info
from cifar10.data.build import archive, synthetic
from cifar10.data.build.archive import CIFAR10, Opened, Published


@dataclasses.dataclass(frozen=True)
class ArchiveSource:
  """A published archive, from any place, or synthetic batches of the same format."""

  published: Published = CIFAR10  # The kind of archive.
  labels: str = 'fine'  # The kind of labels.
  _: dataclasses.KW_ONLY
  path: str | None = None  # The archive or the unpacked folder; None: in the data dir, or fetched.
  url: str | None = None  # The address to download from; None: the original one.
  synthetic_images: int | None = None  # Generates this many images a batch instead.
  seed: int = 0  # The random seed of synthetic images.

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

  def open(self, data_dir: str) -> Opened:
    """Makes, finds or downloads the batches; raises InputError as `download_and_extract` does."""
    published, labels = self.published, self.published.labels[self.labels]
    if self.synthetic_images is None:
      folder = archive.download_and_extract(
        data_dir, published=published, archive=self.path, url=self.url
      )
    else:
      folder = synthetic.write_synthetic(data_dir, self.synthetic_images, self.seed, published)
    splits = {}
    for split, names in published.members.items():
      is_shared = split != 'eval' and published.members['train'] == published.members['validation']
      part = split if is_shared else 'all'  # Where one batch holds two splits.
      read = functools.partial(archive.read_batches, labels=labels, part=part)
      splits[split] = ([os.path.join(folder, name) for name in names], read)
    if published is CIFAR10:
      return Opened(info.CIFAR10.classes, splits, {})
    names_file = os.path.join(folder, published.names_member)
    return Opened(archive.read_names(names_file, labels), splits, {})
