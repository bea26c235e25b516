"""Writes record files and their manifest from a source of images."""

import contextlib
import os
from collections.abc import Iterable, Sequence

import numpy as np

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.data.build.archive import Example, Reader, Source, read_batches
from cifar10.data.manifest import DEPTH, DatasetInfo


def convert_to_tfrecord(
  input_files: Sequence[str], output_file: str, *, read: Reader = read_batches
) -> int:
  """Writes the examples that `read` yields of files to one record file; returns how many.

  The files are by default pickled batches of CIFAR-10, as the published archive has them. Records
  have the features `image` (bytes [3072]) and `label` (int64).
  """
  from cifar10.data import records  # noqa: PLC0415  (TensorFlow, for which refusals do not wait)

  split = os.path.basename(output_file).partition('.')[0]
  with logs.bar(read(input_files), unit=' images', desc=split) as examples:
    return records.write_examples(output_file, examples)


def convert(data_dir: str, source: Source, flags: str = '') -> None:
  """Writes all splits and the manifest, or nothing. The caller must hold the data dir's lock.

  `flags` of the command line select the source: the manifest keeps them for messages.

  Raises:
    InputError: the source cannot be read or is refused.
  """
  paths = {split: manifest.record_path(data_dir, split) for split in manifest.SUBSETS}
  for path in (*paths.values(), manifest.manifest_path(data_dir)):
    files.remove_unfinished(path)
  opened = source.open(data_dir)
  entries: dict[str, dict[str, str | int]] = {}
  with contextlib.ExitStack() as stack:
    for split, path in paths.items():
      input_files, read = opened.splits[split]
      temporary = stack.enter_context(files.replacing(path))
      count = convert_to_tfrecord(input_files, temporary, read=read)
      entries[split] = manifest.entry(path, count, temporary)
    description = source.description
    if not description:
      input_files, read = opened.splits['train']
      statistics = means_and_deviations(read(input_files))
      description = DatasetInfo(str(source.identity['name']), opened.classes, *statistics)
    content = {
      'format': manifest.FORMAT,
      **source.identity,
      **opened.remarks,
      'flags': flags,
      **description.to_json(),
      'subsets': entries,
    }
    # Before the record files get their names: if it is there and one of them is not, the next run
    # detects that this one was killed in between.
    manifest.write_manifest(data_dir, content)
  for split, path in paths.items():
    log.info('wrote %s: %s examples', path, f'{entries[split]["examples"]:,}')


def means_and_deviations(examples: Iterable[Example]) -> tuple[tuple[float, ...], ...]:
  """Returns the means and standard deviations of red, green and blue, in 0..1.

  They are exact for any number of images. Deviations are at least one level of 255: networks divide
  by them, even by a constant channel's.
  """
  counts = np.zeros([DEPTH, 256], np.int64)
  for image, _ in examples:
    for channel, plane in enumerate(image.reshape(DEPTH, -1)):
      counts[channel] += np.bincount(plane, minlength=256)
  levels, totals = np.arange(256) / 255, counts.sum(1)
  means = counts @ levels / totals
  variances = (counts * (levels - means[:, np.newaxis]) ** 2).sum(1) / totals
  both = means, np.maximum(np.sqrt(variances), levels[1])
  return tuple(tuple(round(float(number), 6) for number in each) for each in both)


def lacking(data_dir: str, source: Source) -> list[str]:
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
  there = {'name': manifest.CIFAR10.name, **content}  # Format 1 has no names.
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
  entries = content.get('subsets')
  return [
    path
    for split, path in paths.items()
    if not entries
    or not files.is_file(path)
    or manifest.file_digest(path) != entries[split]['sha256']
  ]
