"""Writes record files and their manifest from a source of images."""

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest, records
from cifar10.data.build.sources import ImageSource
from cifar10.data.info import DEPTH, DatasetInfo

_LEVELS = 256
_VALUES = np.arange(_LEVELS) / (_LEVELS - 1)  # The levels as numbers in 0..1.
_DIGITS = 6  # Further digits of a split's mean have no meaning.


class ChannelStatistics:
  """Counts the values of each channel: exact for any number of images."""

  def __init__(self) -> None:
    """Starts without images."""
    self._counts = np.zeros([DEPTH, _LEVELS], np.int64)

  def add(self, image: np.ndarray) -> None:
    """Adds one image: uint8 [3072], planes R, G, B."""
    for channel, plane in enumerate(image.reshape(DEPTH, -1)):
      self._counts[channel] += np.bincount(plane, minlength=_LEVELS)

  def means(self) -> tuple[float, ...]:
    """Returns the means of red, green and blue, in 0..1."""
    return _rounded(self._means())

  def stds(self) -> tuple[float, ...]:
    """Returns the standard deviations of red, green and blue, in 0..1.

    They are at least one level of 255: networks divide by them, even if a channel is constant.
    """
    squares = (_VALUES - self._means()[:, np.newaxis]) ** 2
    variances = (self._counts * squares).sum(1) / self._counts.sum(1)
    return _rounded(np.maximum(np.sqrt(variances), _VALUES[1]))

  def _means(self) -> np.ndarray:
    return self._counts @ _VALUES / self._counts.sum(1)


def _rounded(numbers: np.ndarray) -> tuple[float, ...]:
  return tuple(round(float(number), _DIGITS) for number in numbers)


def convert(data_dir: str, source: ImageSource, splits: Sequence[str]) -> None:
  """Writes these splits and the manifest, or nothing. The caller must hold the data dir's lock.

  Args:
    data_dir: the folder; its manifest keeps the entries of other splits.
    source: the images.
    splits: the splits to write.

  Raises:
    InputError: the source cannot be read or is refused.
  """
  before = manifest.read_manifest(data_dir) if set(splits) != set(manifest.SPLITS) else None
  entries: dict[str, Any] = dict(before['subsets']) if before else {}
  statistics = ChannelStatistics()
  for split in manifest.SPLITS:
    files.remove_unfinished(manifest.record_path(data_dir, split))
  files.remove_unfinished(manifest.manifest_path(data_dir))
  with contextlib.ExitStack() as stack:
    classes = stack.enter_context(source.open(data_dir))
    if before:
      _check_as_before(data_dir, before, source)
    for split in splits:
      temporary = stack.enter_context(files.replacing(manifest.record_path(data_dir, split)))
      count = _write(temporary, source, split, statistics)
      entries[split] = describe_split(data_dir, split, count, temporary)
    if source.description:
      description = source.description
    elif 'train' in splits:
      name = source.identity['name']
      description = DatasetInfo(name, classes, statistics.means(), statistics.stds())
    else:
      description = DatasetInfo.from_json(before, manifest.manifest_path(data_dir))
    # The manifest is renamed first: if it is there and a record file is not, the next run detects
    # that this one was killed in between.
    file = stack.enter_context(files.writing(manifest.manifest_path(data_dir)))
    file.write(manifest.as_text(_content(source, description, entries)).encode())
  for split in splits:
    path, count = manifest.record_path(data_dir, split), entries[split]['examples']
    log.info('wrote %s: %s examples', path, f'{count:,}')


def _check_as_before(data_dir: str, before: dict[str, Any], source: ImageSource) -> None:
  """Raises InputError if other images are readable now: the splits would share some."""
  for name, now in source.remarks().items():
    was = before.get(name, now)
    if was != now:
      shown = f'{was:,}' if isinstance(was, int) else was  # Somebody may have edited it.
      raise InputError(
        f'{data_dir} was made with {shown} {name} files, and {now:,} are {name} now, so '
        'that the images would be divided otherwise; --force makes all splits again'
      )


def _write(path: str, source: ImageSource, split: str, statistics: ChannelStatistics) -> int:
  """Writes one split's records and returns how many; counts pixels of the training split."""
  total, examples = source.examples(split)
  if split == 'train' and source.description is None:
    examples = _counted(examples, statistics)
  with logs.bar(examples, total=total, unit=' images', desc=split) as shown:
    return records.write_examples(path, shown)


def _counted(
  examples: Iterable[tuple[np.ndarray, int]], statistics: ChannelStatistics
) -> Iterator[tuple[np.ndarray, int]]:
  for image, label in examples:
    statistics.add(image)
    yield image, label


def describe_split(
  data_dir: str, split: str, examples: int, written: str | None = None
) -> dict[str, Any]:
  """Returns the manifest's entry of a split; `written` is its file while that has no final name."""
  path = manifest.record_path(data_dir, split)
  written = written or path
  return {
    'file': os.path.basename(path),
    'examples': examples,
    'bytes': files.size(written),
    'sha256': manifest.file_digest(written),
  }


def _content(
  source: ImageSource, description: DatasetInfo, entries: dict[str, Any]
) -> dict[str, Any]:
  """Returns the content of a manifest."""
  return {
    'format': manifest.FORMAT,
    **source.identity,
    **source.remarks(),
    'flags': shlex.join(source.flags),
    **description.to_json(),
    'subsets': {split: entries[split] for split in manifest.SPLITS},
  }
