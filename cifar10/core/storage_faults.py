"""Describes what is wrong with a folder, from an error of Python or TensorFlow."""

import errno
import os
import re

from cifar10.core import files

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FAULTS = {  # What is wrong, and the remedy; TensorFlow's texts are searched in this order.
  **dict.fromkeys(FULL[:2], 'cannot take what was to be written ({}); make room'),
  errno.EFBIG: 'cannot take a file as large as was to be written ({}); raise ulimit -f',
  **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), 'cannot be written ({}); allow it'),
  **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ENXIO, *files.PASSING), 'fails ({}); mend it'),
}
# A file in place of a folder, or the reverse: as numbers, and in TensorFlow's texts.
_MISPLACED = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR)
_IS_MISPLACED = re.compile(r'\b(is|not) a directory', re.IGNORECASE)


def fault(error: Exception, folder: str) -> str:
  """Returns the fault of the folder with the remedy; '' if the error has another cause."""
  if files.is_url(folder):
    is_of_files = isinstance(error, OSError) or type(error).__module__.startswith('tensorflow')
    message = str(error).partition('\n')[0]
    return f'fails ({message}); mend it' if is_of_files and folder in str(error) else ''
  if folder in str(error) and not files.is_dir(folder):
    return 'has vanished; put it back'
  if what := _misplaced(error, folder):
    return f'has something in the way ({what}); move it away'
  code = number(error)
  return _FAULTS[code].format(os.strerror(code)) if code in _FAULTS else ''


def _misplaced(error: Exception, folder: str) -> str:
  """Says what in the folder is a file in place of a folder, or the reverse; '' for other errors."""
  if isinstance(error, OSError):
    path = error.filename
    is_inside = isinstance(path, str) and files.is_inside(path, folder)
    return f'{path}: {error.strerror}' if is_inside and error.errno in _MISPLACED else ''
  line = str(error).partition('\n')[0]
  is_tensorflows = type(error).__module__.startswith('tensorflow')
  return line if is_tensorflows and folder in line and _IS_MISPLACED.search(line) else ''


def number(error: Exception) -> int | None:
  """The errno of an OSError, or of a TensorFlow error, whose text alone tells it."""
  if isinstance(error, OSError):
    return error.errno
  text = str(error)
  return next((number for number in _FAULTS if os.strerror(number) in text), None)
