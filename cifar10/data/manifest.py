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
from typing import Any

from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError

SUBSETS = ('train', 'validation', 'eval')
MANIFEST_NAME = 'cifar10.json'
FORMAT = 2


def record_path(data_dir: str, subset: str) -> str:
  """Returns a subset's record file: DIR/train.tfrecords and so on."""
  return os.path.join(data_dir, f'{subset}.tfrecords')


def manifest_path(data_dir: str) -> str:
  """Returns DIR/cifar10.json."""
  return os.path.join(data_dir, MANIFEST_NAME)


def file_digest(path: str) -> str:
  """Returns the file's SHA-256 in hexadecimal."""
  digest = hashlib.sha256()
  with files.opened(path) as file:
    while chunk := file.read(1 << 20):
      digest.update(chunk)
  return digest.hexdigest()


def read_manifest(data_dir: str) -> dict[str, Any] | None:
  """Returns the manifest's content, or None if there is no manifest.

  Raises:
    InputError: it cannot be read, is damaged, or was written by a newer program.
  """
  path = manifest_path(data_dir)
  try:
    content = json.loads(files.read_text(path))
    for subset in SUBSETS if 'subsets' in content else ():  # Without them the records are counted.
      each = content['subsets'][subset]
      if (type(each['examples']), type(each['bytes']), type(each['sha256'])) != (int, int, str):
        raise ValueError(f'{subset} is {each}')
    written_as = content.get('format', 1)
  except (FileNotFoundError, NotADirectoryError):
    return None
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); name another --data-dir') from None
  except InputError:  # A URL of no known file system.
    raise
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise DamagedError(f'{path} is no manifest ({error!r}); {remedy(path, force=True)}') from error
  if written_as not in range(1, FORMAT + 1):
    raise InputError(
      f'{path} has format {written_as!r} and this program reads 1 to {FORMAT}; use a newer program'
    )
  return content


def write_manifest(data_dir: str, content: Mapping[str, Any]) -> None:
  """Writes DIR/cifar10.json atomically."""
  files.write_text(manifest_path(data_dir), as_text(content))


def as_text(content: Mapping[str, Any]) -> str:
  """A manifest's content as it stands in its file."""
  return files.json_text(content, indent=2) + '\n'


def digests(data_dir: str) -> dict[str, str] | None:
  """Returns each subset's SHA-256, which identifies data; None if no manifest has them."""
  content = read_manifest(data_dir)
  if content is None or 'subsets' not in content:
    return None
  return {subset: content['subsets'][subset]['sha256'] for subset in SUBSETS}


def entry(path: str, examples: int, written: str | None = None) -> dict[str, Any]:
  """Returns a record file's entry; `written` is the file while that has no final name."""
  return {
    'file': os.path.basename(path),
    'examples': examples,
    'bytes': files.size(written or path),
    'sha256': file_digest(written or path),
  }


def is_as_described(path: str, entry: Mapping[str, Any]) -> bool:
  """Tells whether a record file is there with the bytes that its entry in a manifest describes."""
  return (
    files.is_file(path)
    and files.size(path) == entry['bytes']
    and file_digest(path) == entry['sha256']
  )


def remedy(path: str, *, force: bool = False) -> str:
  """Returns the command that makes a data dir's file again, with the flags that made it."""
  data_dir = os.path.dirname(path) or '.'
  content = files.read_object(manifest_path(data_dir)) or {}
  flags = content.get('flags')
  if 'name' in content and not isinstance(flags, str):  # A user wrote it: this program adds flags.
    return f'restore it, or correct {manifest_path(data_dir)}'
  more = (f' {flags}' if flags else '') + (' --force' if force else '')
  # The files may be another program's.
  restore = '' if 'flags' in content or not force else 'restore it, or '
  return (
    f'{restore}run: python generate_cifar10_tfrecords.py --data-dir {shlex.quote(data_dir)}{more}'
  )
