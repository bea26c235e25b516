"""A source in processes of its own: each runs a shard of it, without TensorFlow.

Examples come in chunks, through a pipe for each process, and are taken from one process after the
other: their order is that of the source, whatever the processes' speed.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import connection, parent_process
from types import TracebackType

import numpy as np

from cifar10.core.errors import InputError, SourceError
from cifar10.data.info import DEPTH, HEIGHT, WIDTH
from cifar10.data.python_source import Chunk, Source

# A forked copy of a process in which TensorFlow runs may hang.
_CONTEXT = multiprocessing.get_context('spawn')
_END_SECONDS = 10
_PIPE_BYTES = 1 << 20  # What Linux lets every user have.


class SourceProcesses:
  """The processes: a context, whose end is theirs."""

  def __init__(self, name: str, num_classes: int, shards: range, num_shards: int):
    """Starts one for each shard.

    Args:
      name: of the source, which takes shards.
      num_classes: labels are below it.
      shards: of this training process.
      num_shards: of all.
    """
    self._name = name
    self._shards = shards
    self._num_shards = num_shards
    self._processes = []
    self._pipes = []
    self._turn: list[int] = []  # Those that have more examples of this epoch, the next one first.
    for shard in shards:
      receiver, sender = _CONTEXT.Pipe(duplex=False)
      _widen(sender)
      arguments = (name, num_classes, shard, num_shards, sender)
      process = _CONTEXT.Process(target=_run, args=arguments, daemon=True)
      process.start()
      sender.close()  # So that the pipe ends with the process.
      self._processes.append(process)
      self._pipes.append(receiver)

  def __enter__(self) -> 'SourceProcesses':
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    for process in self._processes:
      process.terminate()
    for process in self._processes:
      process.join(_END_SECONDS)
      process.kill()

  def epoch(self) -> Iterator[Chunk]:
    """What is left of an epoch, or the next one; raises SourceError where a process fails."""
    if not self._turn:
      self._turn = list(range(len(self._pipes)))
    count = 0
    while self._turn:
      index = self._turn.pop(0)
      chunk = self._received(index)
      if chunk is not None:
        self._turn.append(index)
        count += len(chunk.labels)
        yield chunk
    if not count:
      raise SourceError(f'--source {self._name} yields no examples')

  def _received(self, index: int) -> Chunk | None:
    """The next chunk of a process; None where its epoch is over."""
    pipe = self._pipes[index]
    try:
      message = pipe.recv()
      if isinstance(message, np.ndarray):
        images = np.frombuffer(pipe.recv_bytes(), np.uint8)
        return Chunk(images.reshape([-1, HEIGHT, WIDTH, DEPTH]), message)
    except (EOFError, OSError):
      process, shard = self._processes[index], self._shards[index]
      process.join(_END_SECONDS)
      code = process.exitcode or 0
      how = f'signal {-code}' if code < 0 else f'code {code}'
      raise SourceError(
        f'--source {self._name}: the process of shard {shard} of {self._num_shards} (number '
        f'{process.pid}) was ended by {how}'
      ) from None
    if isinstance(message, str):
      raise SourceError(message)
    return None


def _run(
  name: str, num_classes: int, shard: int, num_shards: int, pipe: connection.Connection
) -> None:
  """One process: sends chunks, None after each epoch, and what went wrong as text.

  A chunk is its labels and, in a message of their own that needs no pickle, its images.
  """
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the training's, who ends this one.
  threading.Thread(target=_end_with_parent, daemon=True).start()
  with contextlib.suppress(BrokenPipeError):  # Nobody reads any more.
    try:
      source = Source(name)
      while True:
        for chunk in source.chunks(num_classes, shard, num_shards):
          pipe.send(chunk.labels)
          pipe.send_bytes(chunk.images.tobytes())
        pipe.send(None)
    except (InputError, SourceError) as error:
      pipe.send(str(error))


def _widen(pipe: connection.Connection) -> None:
  """Makes room for a chunk, where the system allows it: else both ends wake for each 64 KB."""
  if hasattr(fcntl, 'F_SETPIPE_SZ'):  # Linux.
    with contextlib.suppress(OSError):  # A user may have only so much room for all pipes.
      fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _end_with_parent() -> None:
  """Ends this process with the one that started it, however that ends, whatever this one does."""
  parent = parent_process()
  assert parent
  connection.wait([parent.sentinel])
  os._exit(1)
