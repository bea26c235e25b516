"""One-line errors for a full disk, and for folders that vanished or became read-only."""

import contextlib
import errno
import os
from collections.abc import Iterator

from cifar10.core import files
from cifar10.core.errors import CommandError, InputError, StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDIES = {  # TensorFlow's texts are searched in this order.
  **dict.fromkeys(FULL, 'make room'),
  **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), 'allow it'),
  **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ENXIO), 'mend it'),
  # Of a network's file system, or of too many open files.
  **dict.fromkeys((errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN), 'mend it'),
  **dict.fromkeys((errno.EMFILE, errno.ENFILE), 'raise ulimit -n'),
}


@contextlib.contextmanager
def named(flag: str, folder: str) -> Iterator[None]:
  """A context that raises errors of reading and writing files with the folder's name.

  Args:
    flag: the option with the folder.
    folder: its path.

  Raises:
    StorageError: replaces the error of Python or TensorFlow.
  """
  try:
    yield
  except CommandError:  # It says what it is.
    raise
  except Exception as error:
    fault = _fault(error, folder)
    if not fault:
      raise
    raise StorageError(f'{flag} {folder} {fault}, and the same command goes on') from error


@contextlib.contextmanager
def refusing(flag: str, folder: str) -> Iterator[None]:
  """A context for a command's first write: an OSError is the user's mistake, but for a full disk.

  Raises:
    InputError: in place of the OSError.
  """
  try:
    yield
  except OSError as error:
    if error.errno in FULL:
      raise
    raise InputError(
      f'{flag} {folder} cannot be written ({error.strerror}); name another'
    ) from error


def check_identity(flag: str, folder: str, identity: tuple[int, int]) -> None:
  """Raises StorageError if no folder, or another one, has this name now (`files.identity`)."""
  if not files.is_dir(folder) or files.identity(folder) != identity:
    raise StorageError(f'{flag} {folder} has vanished; put it back, and the same command goes on')


def _fault(error: Exception, folder: str) -> str:
  """Returns the fault of the folder with the remedy; '' if the error has another cause."""
  if files.is_url(folder):
    is_of_files = isinstance(error, OSError) or type(error).__module__.startswith('tensorflow')
    message = str(error).partition('\n')[0]
    return f'fails ({message}); mend it' if is_of_files and folder in str(error) else ''
  if folder in str(error) and not files.is_dir(folder):
    return 'has vanished; put it back'
  code = number(error)
  return f'cannot be used ({os.strerror(code)}); {_REMEDIES[code]}' if code in _REMEDIES else ''


def number(error: Exception) -> int | None:
  """The errno of an OSError, or of a TensorFlow error, whose text alone tells it."""
  if isinstance(error, OSError):
    return error.errno
  return next((each for each in _REMEDIES if os.strerror(each) in str(error)), None)
