"""From a source of images to record files and their manifest."""

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tqdm

from cifar10.data import manifest, records
from cifar10.data.channels import ChannelStatistics
from cifar10.data.data_set import Description
from cifar10.data.sources import Source
from cifar10.platform import files
from cifar10.platform.logs import log


def convert(data_dir: str, source: Source, subsets: Sequence[str]) -> None:
  """Writes these splits and the manifest of all, or nothing. No other process may do so meanwhile.

  Args:
    data_dir: what its manifest says of splits that are not written stays.
    source: what they are made from.
    subsets: which.

  Raises:
    InputError: all that the source refuses.
  """
  before = manifest.read_manifest(data_dir) if set(subsets) != set(manifest.SUBSETS) else None
  entries: dict[str, Any] = dict(before['subsets']) if before else {}
  statistics = ChannelStatistics()
  for subset in manifest.SUBSETS:
    files.remove_unfinished(manifest.record_path(data_dir, subset))
  files.remove_unfinished(manifest.manifest_path(data_dir))
  with contextlib.ExitStack() as stack:
    classes = stack.enter_context(source.open(data_dir))
    for subset in subsets:
      temporary = stack.enter_context(files.replacing(manifest.record_path(data_dir, subset)))
      count = _write(temporary, source, subset, statistics)
      entries[subset] = manifest.describe_subset(data_dir, subset, count, temporary)
    if source.description:
      description = source.description
    elif 'train' in subsets:
      name = source.identity['name']
      description = Description(name, classes, statistics.means(), statistics.deviations())
    else:
      description = Description.from_json(before, manifest.manifest_path(data_dir))
    # The last to come is the first to get its name: with it there, and a record file not yet, a run
    # that was killed between the two is found out.
    file = stack.enter_context(files.writing(manifest.manifest_path(data_dir)))
    file.write(manifest.as_text(_content(source, description, entries)).encode())
  for subset in subsets:
    path, count = manifest.record_path(data_dir, subset), entries[subset]['examples']
    log.info('wrote %s: %s examples', path, f'{count:,}')


def _write(path: str, source: Source, subset: str, statistics: ChannelStatistics) -> int:
  """Writes one split's records -> how many; counts the training split's pixels."""
  total, examples = source.examples(subset)
  if subset == 'train' and source.description is None:
    examples = _counted(examples, statistics)
  shown = tqdm.tqdm(examples, total=total, unit=' images', desc=subset)
  with shown:
    return records.write_examples(path, shown)


def _counted(
  examples: Iterable[tuple[np.ndarray, int]], statistics: ChannelStatistics
) -> Iterator[tuple[np.ndarray, int]]:
  for image, label in examples:
    statistics.add(image)
    yield image, label


def _content(source: Source, description: Description, entries: dict[str, Any]) -> dict[str, Any]:
  """The manifest's."""
  return {
    'format': manifest.FORMAT,
    **source.identity,
    **source.remarks(),
    'flags': shlex.join(source.flags),
    **description.to_json(),
    'subsets': {subset: entries[subset] for subset in manifest.SUBSETS},
  }
