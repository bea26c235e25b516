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


_folders: list[str] = []  # Of the contexts in force, which several threads can have.
_counting = threading.Lock()
_hook_before = threading.excepthook


@contextlib.contextmanager
def _quiet_threads(folder: str) -> Iterator[None]:
  """A context that hides what TensorFlow's summary thread prints on errors of the main thread."""
  global _hook_before
  logger = logging.getLogger('tensorflow')
  with _counting:
    if not _folders:
      _hook_before, threading.excepthook = threading.excepthook, _hook
      logger.addFilter(_is_shown)
    _folders.append(folder)
  try:
    yield
  finally:
    with _counting:
      _folders.remove(folder)
      if not _folders:
        threading.excepthook = _hook_before
        logger.removeFilter(_is_shown)


def _hook(arguments: threading.ExceptHookArgs) -> None:
  error, thread = arguments.exc_value, arguments.thread
  is_tensorflows = thread is not None and thread.name == 'EventLoggerThread'
  known = isinstance(error, Exception) and any(_fault(error, folder) for folder in [*_folders])
  if not (is_tensorflows and known):
    _hook_before(arguments)


def _is_shown(record: logging.LogRecord) -> bool:
  return not record.getMessage().startswith('EventFileWriter writer thread error')


def _fault(error: Exception, folder: str) -> str:
  from cifar10.core import storage_faults  # noqa: PLC0415  (errors are few)

  return storage_faults.fault(error, folder)
