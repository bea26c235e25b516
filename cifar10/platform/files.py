"""Files that are written whole or not at all."""

import contextlib
import glob
import os
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
  """A name to write to beside `path`: takes its place at the end, or goes when anything fails."""
  temporary = f'{path}.{os.getpid()}.tmp'
  try:
    yield temporary
    _flush_to_disk(temporary)
    os.replace(temporary, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)


def remove_unfinished(path: str) -> None:
  """Removes what killed processes wrote to take this file's place; only for who alone writes it."""
  for temporary in glob.glob(f'{glob.escape(path)}.*.tmp'):
    os.remove(temporary)


def _flush_to_disk(path: str) -> None:
  """Without it a power cut can leave the new name on empty content."""
  with open(path, 'rb') as file:
    os.fsync(file.fileno())
