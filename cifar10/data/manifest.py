"""The files of a data dir: a record file for each subset, and the manifest on them.

The manifest is the JSON object in DIR/cifar10.json; docs/data.md explains its keys. Format 1 had no
name of the data set, because there was only one; info.py reads the keys of format 2.

This module does not need TensorFlow, so that commands report errors before it is loaded.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from typing import Any, TypedDict

from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError

SUBSETS = ('train', 'validation', 'eval')
MANIFEST_NAME = 'cifar10.json'
FORMAT = 2


class Entry(TypedDict):
  """What a manifest says of a record file."""

  file: str
  examples: int
  bytes: int
  sha256: str


def record_path(data_dir: str, subset: str) -> str:
  """Returns a subset's record file: DIR/train.tfrecords and so on."""
  return os.path.join(data_dir, f'{subset}.tfrecords')


def manifest_path(data_dir: str) -> str:
  """Returns DIR/cifar10.json."""
  return os.path.join(data_dir, MANIFEST_NAME)


def read_manifest(data_dir: str) -> dict[str, Any] | None:
  """Returns the manifest's content, or None if there is no manifest.

  Raises:
    InputError: it cannot be read, is damaged, or was written by a newer program.
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
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise DamagedError(f'{path} is no manifest ({error!r}); {remedy(path, force=True)}') from error
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
  digest = hashlib.sha256()
  with files.opened(path) as file:
    while chunk := file.read(1 << 20):
      digest.update(chunk)
  return digest.hexdigest()


def entry(path: str, examples: int, written: str | None = None) -> Entry:
  """Returns a record file's entry; `written` is the file while that has no final name."""
  there = written or path
  size, digest = files.size(there), file_digest(there)
  return {'file': os.path.basename(path), 'examples': examples, 'bytes': size, 'sha256': digest}


def is_as_described(path: str, entry: Entry) -> bool:
  """Tells whether a record file is there with the bytes that its entry in a manifest describes."""
  is_there = files.is_file(path) and files.size(path) == entry['bytes']
  return is_there and file_digest(path) == entry['sha256']


def remedy(path: str, *, force: bool = False) -> str:
  """Returns the command that makes a data dir's file again, with the flags that made it."""
  data_dir = os.path.dirname(path) or '.'
  content = files.read_object(manifest_path(data_dir)) or {}
  flags = content.get('flags')
  if 'name' in content and not isinstance(flags, str):  # A user wrote it: this program adds flags.
    return f'restore it, or correct {manifest_path(data_dir)}'
  words = ['python generate_cifar10_tfrecords.py --data-dir', shlex.quote(data_dir)]
  command = ' '.join([*words, *filter(None, [flags, '--force' if force else ''])])
  # The files may be another program's.
  return f'run: {command}' if 'flags' in content or not force else f'restore it, or run: {command}'
