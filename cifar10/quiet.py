"""Imports TensorFlow without its greetings."""

import os
import sys
import tempfile


def import_tensorflow() -> None:
  """Imports it, and shows what its C++ code writes meanwhile only if that fails.

  Its newer releases write some lines while they are loaded, before they read any setting. Python
  cannot catch them: they go to the process's standard error itself.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # For what comes later.
  sys.stderr.flush()
  kept = os.dup(2)
  with tempfile.TemporaryFile() as said:
    os.dup2(said.fileno(), 2)
    try:
      import tensorflow  # noqa: F401, PLC0415
    except BaseException:
      said.seek(0)
      os.write(kept, said.read())
      raise
    finally:
      os.dup2(kept, 2)
      os.close(kept)
