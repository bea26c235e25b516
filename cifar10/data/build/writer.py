"""From a source of images to record files and their manifest."""

import contextlib
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cifar10.core import files, logs
from cifar10.core.logs import log
from cifar10.data import manifest, records
from cifar10.data.build.sources import ImageSource
from cifar10.data.info import DEPTH, DatasetInfo

_LEVELS = 256
_DIGITS = 6  # More than the first digits of a split's mean tell nothing.


class ChannelStatistics:
  """Counts how often each channel has each value: exact, whatever the number of images."""

  def __init__(self) -> None:
    """Starts with no image."""
    self._counts = np.zeros([DEPTH, _LEVELS], np.int64)

  def add(self, image: np.ndarray) -> None:
    """Counts one image in: uint8 [3072], planes R, G, B."""
    for channel, plane in enumerate(image.reshape(DEPTH, -1)):
      self._counts[channel] += np.bincount(plane, minlength=_LEVELS)

  def means(self) -> tuple[float, float, float]:
    """Of red, green and blue, in 0..1."""
    return self._by_channel(self._mean)

  def stds(self) -> tuple[float, float, float]:
    """Standard deviations of red, green and blue, in 0..1.

    One level of 255 at least: networks divide by it, and a channel may have a single value.
    """
    return self._by_channel(self._std)

  def _by_channel(self, function) -> tuple[float, float, float]:
    red, green, blue = (round(function(counts), _DIGITS) for counts in self._counts)
    return red, green, blue

  def _mean(self, counts: np.ndarray) -> float:
    return float(counts @ _values() / counts.sum())

  def _std(self, counts: np.ndarray) -> float:
    squares = (_values() - self._mean(counts)) ** 2
    return max(math.sqrt(counts @ squares / counts.sum()), 1 / (_LEVELS - 1))


def _values() -> np.ndarray:
  """What the levels mean: 0..1."""
  return np.arange(_LEVELS) / (_LEVELS - 1)


def convert(data_dir: str, source: ImageSource, splits: Sequence[str]) -> None:
  """Writes these splits and the manifest of all, or nothing. No other process may do so meanwhile.

  Args:
    data_dir: what its manifest says of splits that are not written stays.
    source: what they are made from.
    splits: which.

  Raises:
    InputError: all that the source refuses.
  """
  before = manifest.read_manifest(data_dir) if set(splits) != set(manifest.SPLITS) else None
  entries: dict[str, Any] = dict(before['subsets']) if before else {}
  statistics = ChannelStatistics()
  for split in manifest.SPLITS:
    files.remove_unfinished(manifest.record_path(data_dir, split))
  files.remove_unfinished(manifest.manifest_path(data_dir))
  with contextlib.ExitStack() as stack:
    classes = stack.enter_context(source.open(data_dir))
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
    # The last to come is the first to get its name: with it there, and a record file not yet, a run
    # that was killed between the two is found out.
    file = stack.enter_context(files.writing(manifest.manifest_path(data_dir)))
    file.write(manifest.as_text(_content(source, description, entries)).encode())
  for split in splits:
    path, count = manifest.record_path(data_dir, split), entries[split]['examples']
    log.info('wrote %s: %s examples', path, f'{count:,}')


def _write(path: str, source: ImageSource, split: str, statistics: ChannelStatistics) -> int:
  """Writes one split's records -> how many; counts the training split's pixels."""
  total, examples = source.examples(split)
  if split == 'train' and source.description is None:
    examples = _counted(examples, statistics)
  shown = logs.bar(examples, total=total, unit=' images', desc=split)
  with shown:
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
  """A manifest's entry for one split; `written` is its file where that has no final name yet."""
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
  """The manifest's."""
  return {
    'format': manifest.FORMAT,
    **source.identity,
    **source.remarks(),
    'flags': shlex.join(source.flags),
    **description.to_json(),
    'subsets': {split: entries[split] for split in manifest.SPLITS},
  }
