"""What a data dir holds: a record file for each subset, and the manifest that describes them.

The manifest is the JSON object in DIR/cifar10.json; docs/data.md explains its keys. Format 1 had no
name of the data set, because there was only one. A job's config.json has the keys of `DatasetInfo`.

This module does not need TensorFlow, so that commands report errors before it is loaded.
"""

import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from cifar10.core import files
from cifar10.core.errors import InputError

HEIGHT = WIDTH = 32
DEPTH = 3
IMAGE_BYTES = DEPTH * HEIGHT * WIDTH

SUBSETS = ('train', 'validation', 'eval')
FORMAT = 2

_MOST_CLASSES = 2000  # An evaluation counts in a matrix of their square.
# Control characters, ends of lines and paragraphs, surrogates (of file names that are not UTF-8):
# they would break lines of output, or could not be written at all.
_UNWRITABLE = re.compile('[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
  name: str
  classes: tuple[str, ...]  # The class of label i is classes[i].
  means: tuple[float, ...]  # Means of red, green, blue in the training split, 0..1.
  stds: tuple[float, ...]  # Standard deviations of these.

  @property
  def num_classes(self) -> int:
    """The number of classes, which is the number of logits."""
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

    None, or an object without a name and with CIFAR-10's classes or none, is CIFAR-10. Missing
    means and deviations, which only standardise the input, are CIFAR-10's. Raises InputError, which
    names it, for a value of the wrong type or range.
    """
    content = {} if content is None else content
    if not isinstance(content, Mapping):
      raise InputError(f'{path} is no JSON object but {content!r}; correct it')
    default = CIFAR10.to_json()
    if 'name' not in content and content.get('classes', default['classes']) == default['classes']:
      return CIFAR10
    described: dict[str, Any] = {**default, 'name': None, 'classes': None, **content}
    name, classes, means, deviations = (described[key] for key in default)
    named = isinstance(classes, list) and all(map(_is_line, classes))
    differ = named and 2 <= len(set(classes)) == len(classes) <= _MOST_CLASSES
    positive = _are_channels(deviations) and min(deviations) >= 1e-6  # Divides the input.
    for key, is_right, rule in (
      ('name', _is_line(name), 'text in one line'),
      ('classes', differ, f'2 to {_MOST_CLASSES} different names of one line'),
      ('channel_means', _are_channels(means), 'three numbers from 0 to 1'),
      ('channel_deviations', positive, 'three numbers of 1e-6 to 1'),
    ):
      if not is_right:
        raise InputError(f'{path} has {key} {described[key]!r}: it must be {rule}')
    return cls(name, tuple(classes), tuple(map(float, means)), tuple(map(float, deviations)))


CIFAR10 = DatasetInfo(
  'cifar10',
  ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck'),
  (0.4914, 0.4822, 0.4465),
  (0.2470, 0.2435, 0.2616),
)


def _is_line(text: object) -> bool:
  """Tells whether it is text that fits into one line of output."""
  return isinstance(text, str) and bool(text.strip()) and not _UNWRITABLE.search(text)


def _are_channels(numbers: object) -> bool:
  """Tells whether it has a number for red, green and blue, in pixels from 0 to 1."""
  if not isinstance(numbers, list) or len(numbers) != DEPTH:
    return False
  return all(type(each) in (int, float) and 0 <= each <= 1 for each in numbers)


def describe(data_dir: str) -> DatasetInfo:
  """Returns the data set of a data dir: from its manifest, or CIFAR-10 without a manifest."""
  return DatasetInfo.from_json(read_manifest(data_dir), manifest_path(data_dir))


def record_path(data_dir: str, subset: str) -> str:
  """Returns a subset's record file: DIR/train.tfrecords and so on."""
  return os.path.join(data_dir, f'{subset}.tfrecords')


def manifest_path(data_dir: str) -> str:
  """Returns DIR/cifar10.json."""
  return os.path.join(data_dir, 'cifar10.json')


def read_manifest(data_dir: str) -> dict[str, Any] | None:
  """Returns the manifest's content, or None if there is no manifest.

  Raises InputError where it cannot be read, is damaged, or was written by a newer program.
  """
  path = manifest_path(data_dir)
  try:
    text = files.read(path)
  except (FileNotFoundError, NotADirectoryError):
    return None
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); name another --data-dir') from None
  try:
    content = json.loads(text)
    for subset in SUBSETS if 'subsets' in content else ():  # Without them the records are counted.
      each = content['subsets'][subset]
      if (type(each['examples']), type(each['bytes']), type(each['sha256'])) != (int, int, str):
        raise ValueError(f'{subset} is {each}')
    written_as = content.get('format', 1)
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
    raise InputError(f'{path} is no manifest ({error!r}); {remedy(path)}') from error
  if written_as not in range(1, FORMAT + 1):
    raise InputError(
      f'{path} has format {written_as!r} and this program reads 1 to {FORMAT}; use a newer program'
    )
  return dict(content)


def write_manifest(data_dir: str, content: Mapping[str, object]) -> None:
  """Writes DIR/cifar10.json, which appears whole."""
  files.write_text(manifest_path(data_dir), files.json_text(content, indent=2) + '\n')


def digests(data_dir: str) -> dict[str, str] | None:
  """Returns each subset's SHA-256, which identifies data; None if no manifest has them."""
  subsets = (read_manifest(data_dir) or {}).get('subsets')
  return subsets and {subset: subsets[subset]['sha256'] for subset in SUBSETS}


def file_digest(path: str) -> str:
  """Returns the file's SHA-256 in hexadecimal."""
  with files.opened(path) as file:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
      digest.update(chunk)
  return digest.hexdigest()


def entry(path: str, examples: int, written: str | None = None) -> dict[str, str | int]:
  """Returns what a manifest says of a record file; `written`: where it lies until then."""
  size, digest = files.signature(written or path)[0], file_digest(written or path)
  return {'file': os.path.basename(path), 'examples': examples, 'bytes': size, 'sha256': digest}


def remedy(path: str) -> str:
  """Returns the command that makes a data dir's file again, with the flags that made it."""
  data_dir = os.path.dirname(path) or '.'
  content = files.read_object(manifest_path(data_dir)) or {}
  if 'name' in content and 'flags' not in content:  # A user wrote it: this program adds flags.
    return f'restore it, or correct {manifest_path(data_dir)}'
  command = f'run: python generate_cifar10_tfrecords.py --data-dir {shlex.quote(data_dir)}'
  command = f'{command} {content.get("flags", "")}'.rstrip()
  # What is there may be another program's.
  return f'restore it, or {command} --force' if files.exists(path) else command
