"""Describes a data set: the shape of its images, its classes, its pixels' means and deviations.

Manifests and job configurations hold it under the keys of `DatasetInfo.to_json`. A file without
these keys is older than all data sets but CIFAR-10. This module does not need TensorFlow.
"""

import dataclasses
import unicodedata
from collections.abc import Mapping

from cifar10.core.errors import InputError
from cifar10.data import manifest

HEIGHT = WIDTH = 32
DEPTH = 3
IMAGE_BYTES = DEPTH * HEIGHT * WIDTH

_LEAST_CLASSES = 2
_MOST_CLASSES = 2000  # An evaluation counts in a matrix of their square.
# Control characters, surrogates (of file names that are not UTF-8), line and paragraph separators:
# they would break lines of output, or could not be written at all.
_UNWRITABLE = {'Cc', 'Cs', 'Zl', 'Zp'}
_DEVIATIONS = 1e-6, 0.5  # The input is divided by it; at most, half the pixels are 0 and half 1.


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

  def to_json(self) -> dict[str, object]:
    """Returns the JSON object that `from_json` reads."""
    return {
      'name': self.name,
      'classes': list(self.classes),
      'channel_means': list(self.means),
      'channel_deviations': list(self.stds),
    }

  @classmethod
  def from_json(cls, content: Mapping[str, object] | None, path: str) -> 'DatasetInfo':
    """Reads the data set from the JSON object of the file at `path`; other keys are ignored.

    None, or an object without a name and other classes, is CIFAR-10. Missing means and deviations,
    which only standardise the input, are CIFAR-10's.

    Raises:
      InputError: a value has the wrong type or range; the message names it.
    """
    content = {} if content is None else content
    if not isinstance(content, Mapping):
      raise InputError(f'{path} is no JSON object but {content!r}; correct it')
    described = {**CIFAR10.to_json(), **content}
    if 'name' not in content:
      if described['classes'] != list(CIFAR10.classes):
        raise InputError(f'{path} has classes of its own but no name; add "name"')
      return CIFAR10
    name = described['name']
    if not isinstance(name, str) or not is_name(name):
      raise InputError(f'{path} has name {name!r}: it must be text in one line')
    return cls(
      name,
      check_classes(content.get('classes'), path),
      _channels(described['channel_means'], 0, 1, f'{path} has channel_means'),
      _channels(described['channel_deviations'], *_DEVIATIONS, f'{path} has channel_deviations'),
    )


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


def check_classes(classes: object, origin: str) -> tuple[str, ...]:
  """Returns class names; raises InputError unless they are two or more different texts."""
  if not isinstance(classes, (list, tuple)) or not _LEAST_CLASSES <= len(classes) <= _MOST_CLASSES:
    raise InputError(
      f'{origin} has classes {classes!r}: they must be a list of {_LEAST_CLASSES} names or more, '
      f'at most {_MOST_CLASSES}'
    )
  for name in classes:
    if not isinstance(name, str) or not is_name(name) or classes.count(name) > 1:
      raise InputError(
        f'{origin} has a class {name!r}: it must be text in one line, and no other class have it'
      )
  return tuple(classes)


def is_name(text: str) -> bool:
  """Tells whether a text fits into one line of output."""
  return bool(text.strip()) and not {unicodedata.category(each) for each in text} & _UNWRITABLE


def _channels(values: object, least: float, most: float, subject: str) -> tuple[float, ...]:
  """Returns three numbers; raises InputError unless they are from `least` to `most`."""
  numbers = values if isinstance(values, (list, tuple)) else ()
  is_right = all(type(each) in (int, float) and least <= each <= most for each in numbers)
  if not is_right or len(numbers) != DEPTH:
    raise InputError(
      f'{subject} {values!r}: they must be three numbers from {least:g} to {most:g}, of red, '
      'green and blue in pixels from 0 to 1'
    )
  return tuple(map(float, numbers))
