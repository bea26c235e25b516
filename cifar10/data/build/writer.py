"""Writes record files and their manifest from a source of images."""

import contextlib
import functools
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import info, manifest
from cifar10.data.build.archive import Example, Reader, read_batches
from cifar10.data.build.image_folder import ImageFolder
from cifar10.data.build.sources import ArchiveSource
from cifar10.data.info import DEPTH, DatasetInfo

ImageSource = ArchiveSource | ImageFolder

_LEVELS = np.arange(256) / 255  # The values of a byte as numbers in 0..1.


class ChannelStatistics:
  """Counts the values of each channel: exact for any number of images."""

  def __init__(self) -> None:
    self._counts = np.zeros([DEPTH, len(_LEVELS)], np.int64)

  def counted(self, read: Reader, input_files: Sequence[str]) -> Iterator[Example]:
    """Yields what `read` does, and counts its pixels."""
    for image, label in read(input_files):
      for channel, plane in enumerate(image.reshape(DEPTH, -1)):
        self._counts[channel] += np.bincount(plane, minlength=len(_LEVELS))
      yield image, label

  def means_and_stds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the means and standard deviations of red, green and blue, in 0..1.

    Deviations are at least one level of 255: networks divide by them, even by a constant channel's.
    """
    totals = self._counts.sum(1)
    means = self._counts @ _LEVELS / totals
    variances = (self._counts * (_LEVELS - means[:, np.newaxis]) ** 2).sum(1) / totals
    return _rounded(means), _rounded(np.maximum(np.sqrt(variances), _LEVELS[1]))


def _rounded(numbers: np.ndarray) -> tuple[float, ...]:
  return tuple(round(float(number), 6) for number in numbers)  # More digits have no meaning.


def convert_to_tfrecord(
  input_files: Sequence[str],
  output_file: str,
  *,
  read: Reader = read_batches,
) -> int:
  """Writes the examples of files to one record file; returns how many.

  Args:
    input_files: by default pickled batches of CIFAR-10, as the published archive has them.
    output_file: its records have the features `image` (bytes [3072]) and `label` (int64).
    read: yields the examples in the files.
  """
  from cifar10.data import records  # noqa: PLC0415  (TensorFlow, for which refusals do not wait)

  split = os.path.basename(output_file).partition('.')[0]
  with logs.bar(read(input_files), unit=' images', desc=split) as examples:
    return records.write_examples(output_file, examples)


def convert(data_dir: str, source: ImageSource) -> None:
  """Writes all splits and the manifest, or nothing. The caller must hold the data dir's lock.

  Raises:
    InputError: the source cannot be read or is refused.
  """
  manifest_path = manifest.manifest_path(data_dir)
  paths = {split: manifest.record_path(data_dir, split) for split in manifest.SUBSETS}
  for path in (*paths.values(), manifest_path):
    files.remove_unfinished(path)
  opened = source.open(data_dir)
  entries: dict[str, dict[str, Any]] = {}
  statistics = ChannelStatistics()
  with contextlib.ExitStack() as stack:
    for split, path in paths.items():
      input_files, read = opened.splits[split]
      if split == 'train' and not source.description:
        read = functools.partial(statistics.counted, read)
      temporary = stack.enter_context(files.replacing(path))
      count = convert_to_tfrecord(input_files, temporary, read=read)
      entries[split] = manifest.entry(path, count, temporary)
    description = source.description or DatasetInfo(
      source.identity['name'], opened.classes, *statistics.means_and_stds()
    )
    content = {
      'format': manifest.FORMAT,
      **source.identity,
      **opened.remarks,
      'flags': shlex.join(source.flags),
      **description.to_json(),
      'subsets': entries,
    }
    # The manifest is renamed first: if it is there and a record file is not, the next run detects
    # that this one was killed in between.
    file = stack.enter_context(files.writing(manifest_path))
    file.write(manifest.as_text(content).encode())
  for split, path in paths.items():
    log.info('wrote %s: %s examples', path, f'{entries[split]["examples"]:,}')


def lacking(data_dir: str, source: ImageSource) -> list[str]:
  """Returns the record files of a source that are not in a data dir, or are damaged.

  Raises:
    InputError: the folder has records of another source, or records without a manifest (by an
      older program), which would be overwritten.
  """
  content = manifest.read_manifest(data_dir)
  paths = {split: manifest.record_path(data_dir, split) for split in manifest.SUBSETS}
  if content is None:
    if any(map(files.exists, paths.values())):
      raise InputError(
        f'{data_dir} holds record files without a manifest, which can be trained on as they are; '
        '--force replaces them'
      )
    return list(paths.values())
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
  entries = content.get('subsets', {})
  return [
    path
    for split, path in paths.items()
    if split not in entries or not manifest.is_as_described(path, entries[split])
  ]
