"""Describes a data set: the shape of its images, its classes, its pixels' means and deviations.

Manifests and job configurations hold it under the keys of `DatasetInfo.to_json`. A file without
these keys is older than all data sets but CIFAR-10. This module does not need TensorFlow.
"""

import dataclasses
import unicodedata
from collections.abc import Mapping
from typing import Any

from cifar10.core.errors import InputError
from cifar10.data import manifest

HEIGHT = WIDTH = 32
DEPTH = 3
IMAGE_BYTES = DEPTH * HEIGHT * WIDTH


# Control characters, surrogates (of file names that are not UTF-8), line and paragraph separators:
# they would break lines of output, or could not be written at all.
_UNWRITABLE = {'Cc', 'Cs', 'Zl', 'Zp'}
LEAST_CLASSES = 2
_MOST_CLASSES = 2000  # An evaluation counts in a matrix of their square.
_SMALLEST_DEVIATION = 1e-6  # The input is divided by it.
_LARGEST_DEVIATION = 0.5  # Of numbers from 0 to 1: half of them 0, half of them 1.


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
  """The description of a data set."""

  name: str
  classes: tuple[str, ...]  # The class of label i is classes[i].
  means: tuple[float, ...]  # Means of red, green, blue in the training split, 0..1.
  stds: tuple[float, ...]  # Standard deviations of these.

  @property
  def num_classes(self) -> int:
    """Returns the number of classes, which is the number of logits."""
    return len(self.classes)

  def to_json(self) -> dict[str, Any]:
    """Returns the JSON object that `from_json` reads."""
    return {
      'name': self.name,
      'classes': list(self.classes),
      'channel_means': list(self.means),
      'channel_deviations': list(self.stds),
    }

  @classmethod
  def from_json(cls, content: Mapping[str, Any] | None, path: str) -> 'DatasetInfo':
    """Reads the data set from the JSON object of a file.

    Args:
      content: the JSON object; other keys are ignored. None, or an object without a name and
        other classes, is CIFAR-10. Missing means and deviations, which only standardise the input,
        are CIFAR-10's.
      path: the file, for messages.

    Raises:
      InputError: a value has the wrong type or range; the message names it.
    """
    if content is None:
      return CIFAR10
    if not isinstance(content, Mapping):
      raise InputError(f'{path} is no JSON object but {content!r}; correct it')
    if 'name' not in content:
      if content.get('classes', list(CIFAR10.classes)) != list(CIFAR10.classes):
        raise InputError(f'{path} has classes of its own but no name; add "name"')
      return CIFAR10
    name, classes = content['name'], content.get('classes', [])
    means = content.get('channel_means', CIFAR10.means)
    stds = content.get('channel_deviations', CIFAR10.stds)
    if not is_name(name):
      raise InputError(f'{path} has name {name!r}: it must be text in one line')
    check_classes(classes, path)
    _check_channels(means, 0, 1, f'{path} has channel_means')
    _check_channels(stds, _SMALLEST_DEVIATION, _LARGEST_DEVIATION, f'{path} has channel_deviations')
    return cls(name, tuple(classes), tuple(map(float, means)), tuple(map(float, stds)))


CIFAR10 = DatasetInfo(
  'cifar10',
  ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck'),
  (0.4914, 0.4822, 0.4465),
  (0.2470, 0.2435, 0.2616),
)


def describe(data_dir: str) -> DatasetInfo:
  """Returns the data set of a data dir: from its manifest, or CIFAR-10 without a manifest.

  Raises:
    InputError: the manifest is damaged or invalid.
  """
  return DatasetInfo.from_json(manifest.read_manifest(data_dir), manifest.manifest_path(data_dir))


def check_classes(classes: Any, origin: str) -> None:
  """Raises InputError unless the class names are two or more different texts."""
  if not isinstance(classes, (list, tuple)) or not LEAST_CLASSES <= len(classes) <= _MOST_CLASSES:
    raise InputError(
      f'{origin} has classes {classes!r}: they must be a list of {LEAST_CLASSES} names or more, '
      f'at most {_MOST_CLASSES}'
    )
  for name in classes:
    if not is_name(name):
      raise InputError(f'{origin} has a class {name!r}: it must be text in one line; rename it')
  if len(set(classes)) < len(classes):
    twice = next(name for name in classes if classes.count(name) > 1)
    raise InputError(f'{origin} has the class {twice!r} more than once; name each only once')


def is_name(value: Any) -> bool:
  """Tells whether the value is text that fits into one line of output."""
  return (
    isinstance(value, str)
    and bool(value.strip())
    and not any(unicodedata.category(character) in _UNWRITABLE for character in value)
  )


def _check_channels(values: Any, least: float, most: float, subject: str) -> None:
  """Raises InputError unless the values are three numbers from `least` to `most`."""
  is_list = isinstance(values, (list, tuple)) and len(values) == DEPTH
  if not is_list or not all(type(v) in (int, float) and least <= v <= most for v in values):
    raise InputError(
      f'{subject} {values!r}: they must be three numbers from {least:g} to {most:g}, of red, '
      'green and blue in pixels from 0 to 1'
    )
