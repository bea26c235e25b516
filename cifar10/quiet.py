"""TensorFlow without what it says of itself."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

# What XLA's first compilation in a process writes, whatever the log level.
_ON_COMPILING = (b'absl::InitializeLog', b'Compiled cluster using XLA')


def import_tensorflow() -> None:
  """Imports it, and shows what its C++ code writes meanwhile only if that fails.

  Its newer releases write some lines while they are loaded, before they read any setting.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # For what comes later.
  with tempfile.TemporaryFile() as said:
    try:
      with _standard_error_to(said):
        import tensorflow  # noqa: F401, PLC0415
    except BaseException:
      _repeat(said)
      raise


def can_compile(session_config: Any) -> bool:
  """Whether XLA compiles for this processor: tries, and does not show that XLA says so.

  Args:
    session_config: of the sessions to come: a process's first one decides how many threads an
      operation has in all of them.
  """
  import tensorflow as tf  # noqa: PLC0415

  config = tf.compat.v1.ConfigProto()
  config.CopyFrom(session_config)
  config.device_count['GPU'] = 0
  config.use_per_session_threads = True  # Or it would decide how many operations run at once, too.
  del config.device_filters[:]
  with tf.Graph().as_default(), tempfile.TemporaryFile() as said:
    number = tf.compat.v1.placeholder(tf.float32, [])
    twice = tf.function(lambda x: x + x, jit_compile=True, autograph=False)(number)
    try:
      with _standard_error_to(said), tf.compat.v1.Session(config=config) as session:
        return session.run(twice, {number: 1.0}) == 2
    except tf.errors.OpError:
      return False
    finally:
      _repeat(said, but=_ON_COMPILING)


@contextlib.contextmanager
def _standard_error_to(file: IO[bytes]) -> Iterator[None]:
  """The process's own, which C++ writes to: Python's `sys.stderr` is not all of it."""
  sys.stderr.flush()
  kept = os.dup(2)
  os.dup2(file.fileno(), 2)
  try:
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)


def _repeat(said: IO[bytes], but: tuple[bytes, ...] = ()) -> None:
  """Writes the lines to standard error, except those that contain one of `but`."""
  said.seek(0)
  for line in said:
    if not any(part in line for part in but):
      os.write(2, line)
