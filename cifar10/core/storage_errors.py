"""One-line errors for a full disk, and for a folder that vanished or became read-only."""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Iterator

from cifar10.core import files
from cifar10.core.errors import InputError, SomeFailedError, StorageError, TaskLostError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FAULTS = {  # What is wrong, and the remedy; TensorFlow's texts are searched in this order.
  **dict.fromkeys(_FULL, 'cannot take what was to be written ({}); make room'),
  **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), 'cannot be written ({}); allow it'),
  **dict.fromkeys((errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO), 'fails ({}); mend it'),
}


@contextlib.contextmanager
def named(flag: str, folder: str) -> Iterator[None]:
  """A context that names the folder in which files could not be written or read.

  Args:
    flag: the option that named the folder.
    folder: its path.

  Raises:
    StorageError: in place of the error of Python or TensorFlow.
  """
  try:
    with _quiet_threads(folder):
      yield
  except (InputError, StorageError, TaskLostError, SomeFailedError):  # They say what it is.
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
    if error.errno in _FULL:
      raise
    raise InputError(
      f'{flag} {folder} cannot be written ({error.strerror}); name another'
    ) from error


@contextlib.contextmanager
def _quiet_threads(folder: str) -> Iterator[None]:
  """A context without the reports of TensorFlow's summary thread on what the main thread raises."""
  before = threading.excepthook
  logger = logging.getLogger('tensorflow')

  def hook(arguments: threading.ExceptHookArgs) -> None:
    if not isinstance(arguments.exc_value, Exception) or not _fault(arguments.exc_value, folder):
      before(arguments)

  def is_shown(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith('EventFileWriter writer thread error')

  threading.excepthook = hook
  logger.addFilter(is_shown)
  try:
    yield
  finally:
    threading.excepthook = before
    logger.removeFilter(is_shown)


def _fault(error: Exception, folder: str) -> str:
  """What is wrong with the folder, and the remedy; empty where the error has another cause."""
  if files.is_url(folder):
    is_of_files = isinstance(error, OSError) or type(error).__module__.startswith('tensorflow')
    message = str(error).partition('\n')[0]
    return f'fails ({message}); mend it' if is_of_files and folder in str(error) else ''
  if folder in str(error) and not files.is_dir(folder):
    return 'has vanished; put it back'
  number = _number(error)
  return _FAULTS[number].format(os.strerror(number)) if number in _FAULTS else ''


def _number(error: Exception) -> int | None:
  """The errno of an OSError, or of a TensorFlow error, whose text alone tells it."""
  if isinstance(error, OSError):
    return error.errno
  text = str(error)
  return next((number for number in _FAULTS if os.strerror(number) in text), None)
