"""Names of files, folders and patterns -> the files."""

import glob
import os
from collections.abc import Iterable, Iterator


def each_file(names: Iterable[str]) -> Iterator[str]:
  """The files that are meant, of each name in sorted order; one folder's at a time in memory.

  Of a folder these are all in it and below, but hidden ones. What is there by its own name is no
  pattern. What is nothing of all that comes as it is: reading it says what is wrong.
  """
  for name in names:
    if os.path.lexists(name):
      yield from _files_in(name)
      continue
    matches = sorted(glob.glob(name, recursive=True))
    for path in matches:
      yield from _files_in(path)
    if not matches:
      yield name


def _files_in(path: str) -> Iterator[str]:
  """The files in a folder and below; of what is no folder, or of an empty one, the path itself."""
  is_empty = True
  for folder, folders, names in os.walk(path):
    folders[:] = sorted(name for name in folders if not name.startswith('.'))
    for name in sorted(name for name in names if not name.startswith('.')):
      is_empty = False
      yield os.path.join(folder, name)
  if is_empty:
    yield path
