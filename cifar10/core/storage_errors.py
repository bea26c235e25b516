"""One-line errors for a full disk, and for folders that vanished or became read-only."""

import contextlib
import logging
import threading
from collections.abc import Iterator

from cifar10.core import files
from cifar10.core.errors import CommandError, InputError, StorageError


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
    with _quiet_threads(folder):
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
    from cifar10.core import storage_faults  # noqa: PLC0415

    if error.errno in storage_faults.FULL:
      raise
    raise InputError(
      f'{flag} {folder} cannot be written ({error.strerror}); name another'
    ) from error


def check_identity(flag: str, folder: str, identity: tuple[int, int]) -> None:
  """Raises StorageError if no folder, or another one, has this name now (`files.identity`)."""
  if not files.is_dir(folder) or files.identity(folder) != identity:
    raise StorageError(f'{flag} {folder} has vanished; put it back, and the same command goes on')


@contextlib.contextmanager
def _quiet_threads(folder: str) -> Iterator[None]:
  """A context that hides what TensorFlow's summary thread prints on errors of the main thread."""
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
  from cifar10.core import storage_faults  # noqa: PLC0415  (errors are few)

  return storage_faults.fault(error, folder)
