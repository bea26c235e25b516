"""Imports TensorFlow, once in a process, and hides the lines that it prints on import.

Options and their checks need no TensorFlow, so that --help and refusals do not wait seconds for it:
a command calls `start` after them, and imports everything else then.
"""

import contextlib
import gc
import os
import string
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

from cifar10.core import limits

_importing = threading.RLock()  # A second thread would use what is imported so far.


def start(verbose: bool = False) -> None:
  """Imports TensorFlow, and shows what its C++ code wrote meanwhile only if the import fails.

  Newer releases write some lines while they are loaded, before they read any setting; `verbose`
  shows them.
  """
  if not verbose:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # For what it prints after its import.
  # Or one process would allocate all memory of every GPU, and a second one fail.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  limits.set_threads()
  if 'grpc_proxy' not in os.environ:
    # Without this list gRPC connects to tasks through the proxy for HTTP, and they wait in vain. It
    # leaves the proxy out for hosts whose names end with an entry, and every name ends with one.
    endings = ','.join(string.ascii_lowercase + string.digits + '.-_:')
    os.environ.update(no_grpc_proxy=endings)
  with _importing, tempfile.TemporaryFile() as output:
    if 'tensorflow.python' in sys.modules:
      return
    gc.disable()  # An import makes a million objects that stay, and each collection visits all.
    try:
      with contextlib.nullcontext() if verbose else standard_error_to(output):
        import tensorflow  # noqa: F401, PLC0415
    except BaseException:
      output.seek(0)
      os.write(2, output.read())
      raise
    finally:
      gc.freeze()
      gc.enable()


@contextlib.contextmanager
def standard_error_to(file: IO[bytes]) -> Iterator[None]:
  """Redirects the process's standard error, to which C++ writes without `sys.stderr`."""
  sys.stderr.flush()
  kept = os.dup(2)
  os.dup2(file.fileno(), 2)
  try:
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)
