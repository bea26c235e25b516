"""Imports and checks a Python function of training examples, and cuts its output into chunks.

The function runs in this process or in processes of its own, a shard of it in each. Their chunks
come through a pipe for each process and are taken from one process after the other: the order of
the examples does not depend on the processes' speed. Nothing here needs TensorFlow, so that these
processes do not load it.
"""

import contextlib
import fcntl
import functools
import importlib
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import connection, parent_process
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from cifar10.core import parts
from cifar10.core.errors import InputError, SourceError
from cifar10.data.info import DEPTH, HEIGHT, WIDTH

_SHAPE = (HEIGHT, WIDTH, DEPTH)
_CHUNK = 256  # Examples: few enough that a slow function's first ones come soon.
# A forked copy of a process in which TensorFlow runs may hang.
_CONTEXT = multiprocessing.get_context('spawn')
_MOST_SHOWN = 300  # Characters of a message.
_END_SECONDS = 10
_PIPE_BYTES = 1 << 20  # What Linux lets every user have.


class Chunk(NamedTuple):
  """Consecutive examples."""

  images: np.ndarray  # uint8 [n, 32, 32, 3]
  labels: np.ndarray  # int32 [n]


NOTHING = Chunk(np.zeros([0, *_SHAPE], np.uint8), np.zeros([0], np.int32))


class PythonSource:
  """A function that yields the examples of an epoch, or of one shard of it."""

  def __init__(self, name: str):
    """Imports it.

    Args:
      name: 'package.module:function'.

    Raises:
      InputError: it cannot be imported, does not exist, or has other parameters.
    """
    self.name = name
    self._function = imported('--source', name)
    self.takes_shards = _takes_shards(name, self._function)
    self._made: dict[tuple[int, int], Iterable[Any]] = {}

  def check_shards(self, wanted_by: str) -> None:
    """Raises InputError unless the function takes shards, which the named option needs."""
    if not self.takes_shards:
      raise InputError(
        f'--source {self.name} takes no shards, which {wanted_by} needs; give its function the '
        'parameters (shard, num_shards)'
      )

  def check(self, num_classes: int, examples_per_epoch: int | None = None) -> int:
    """Checks the first example; returns how many examples an epoch has.

    Args:
      num_classes: labels are below it.
      examples_per_epoch: what the user says of it; None: the function's result has a `len`.

    Raises:
      InputError: there is no example, the first one is wrong, or their number is unknown.
    """
    try:
      with contextlib.closing(self.chunks(num_classes, most=1)) as chunks:
        first = next(chunks)
      count = examples_per_epoch or self._length(len(first.labels))
    except SourceError as error:
      raise InputError(str(error)) from None
    if not count:
      raise InputError(
        f'--source {self.name} does not say how many examples an epoch has (what it returns has no '
        'len); add --examples-per-epoch'
      )
    return count

  def chunks(
    self, num_classes: int, shard: int = 0, num_shards: int = 1, most: int = _CHUNK
  ) -> Generator[Chunk, None, None]:
    """Yields one epoch of a shard, in the function's order; its batches stay whole.

    Args:
      num_classes: labels must be below that.
      shard, num_shards: which part, if the function takes shards; else 0 of 1.
      most: how many single examples a chunk has at most.

    Raises:
      SourceError: the function failed, or an example is wrong; the message has its number.
    """
    part = f', shard {shard} of {num_shards}' if num_shards > 1 else ''
    number = 1
    for items in self._drawn(shard, num_shards, part, most):
      chunk = self._chunk(items, num_classes, part, number)
      number += len(chunk.labels)
      if len(chunk.labels):
        yield chunk
    if number == 1 and num_shards == 1:
      raise SourceError(
        f'--source {self.name} yields no examples; one that returns an iterator must make it anew '
        'each time'
      )

  def _drawn(
    self, shard: int, num_shards: int, part: str, most: int
  ) -> Generator[list[Any], None, None]:
    """What the function yields, in lists of some examples; raises SourceError for its exceptions.

    A batch is the last of its list. What came before an exception is in a list before it.
    """
    number = 1
    more = True
    fault = functools.partial(self._error, part)
    with others_code(lambda said: fault(number, said), self._function):
      iterator = iter(self._iterable(shard, num_shards))
    try:
      while more:
        items: list[Any] = []
        failure = None
        try:
          with others_code(SourceError, self._function):
            more = _fill(items, iterator, most)
        except SourceError as error:
          failure = error
        if items:
          yield items
          number += sum(map(_size, items))
        if failure:
          raise fault(number, str(failure))
    finally:
      if hasattr(iterator, 'close'):
        with others_code(lambda said: fault(number, said), self._function):
          iterator.close()

  def _chunk(self, items: list[Any], num_classes: int, part: str, number: int) -> Chunk:
    """A list's examples, the first of which has this number; raises SourceError for a wrong one."""
    images: list[np.ndarray] = []
    labels: list[int] = []
    fault = ''
    for item in items:
      try:
        image, label = _arrays(item)
      except Exception as error:  # Arrays of others may fail in any way.
        fault = str(error) if isinstance(error, ValueError) else described(error, None)
        break
      images.append(image if label.ndim else image[np.newaxis])
      labels += label.tolist() if label.ndim else [label.item()]
    for place, value in enumerate(labels):
      if not 0 <= value < num_classes:
        wrong = f'its label is {value}, not 0 to {num_classes - 1}'
        raise self._error(part, number + place, wrong)
    if fault:
      raise self._error(part, number + len(labels), fault)
    return Chunk(np.concatenate(images), np.array(labels, np.int32))

  def _iterable(self, shard: int, num_shards: int) -> Iterable[Any]:
    """Returns the function's result; an iterator is requested again for each epoch."""
    if (shard, num_shards) not in self._made:
      made = self._function(*((shard, num_shards) if self.takes_shards else ()))
      if not hasattr(made, '__iter__'):
        raise SourceError(
          f'--source {self.name} returns {made!r:.60}, which cannot be iterated over'
        )
      if hasattr(made, 'reset_state'):  # tensorpack's, which wants it once in each process.
        made.reset_state()
      if iter(made) is made:
        return made
      self._made[shard, num_shards] = made
    return self._made[shard, num_shards]

  def _length(self, items: int) -> int:
    """Returns how many examples an epoch has (len x the examples of an item), or 0 if unknown."""
    made = self._made.get((0, 1))
    with others_code(lambda said: SourceError(f'--source {self.name}: {said}'), self._function):
      try:
        return len(made) * items if hasattr(made, '__len__') else 0  # type: ignore[arg-type]
      except NotImplementedError:  # As a DataFlow says that it does not know.
        return 0

  def _error(self, part: str, number: int, fault: str) -> SourceError:
    return SourceError(f'--source {self.name}{part}: example {number} (counted from 1): {fault}')


class SourceProcesses:
  """Runs a source in processes, one shard in each: a context that ends them."""

  def __init__(self, name: str, num_classes: int, shards: range, num_shards: int):
    """Starts one process for each shard.

    Args:
      name: the source, which must take shards.
      num_classes: labels must be below that.
      shards: those of this training process.
      num_shards: the number of all shards.
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
    """Yields the rest of an epoch, or the next epoch; raises SourceError if a process fails."""
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
    """Returns the next chunk of a process; None at the end of its epoch."""
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


def imported(flag: str, name: str) -> Any:
  """Imports 'package.module:name', which need not be a part of the program.

  Args:
    flag: the option that names it.
    name: its module is looked up as by `python -m`, in the current folder, too.

  Raises:
    InputError: it cannot be imported, does not exist, or is not callable.
  """
  module_name, _, path = name.partition(':')
  here = os.getcwd()
  if here not in sys.path and '' not in sys.path:
    sys.path.append(here)  # Whichever way the command was started.
  with others_code(lambda said: InputError(f'{flag} {name} cannot be imported: {said}'), None):
    module = importlib.import_module(module_name)
  try:
    function = parts.find(name)
  except AttributeError:
    file = getattr(module, '__file__', module_name)
    raise InputError(f'{flag} {name}: there is no {path} in {file}; name another') from None
  if not callable(function):
    raise InputError(f'{flag} {name} is {function!r:.60}, not a function; name another')
  return function


@contextlib.contextmanager
def others_code(
  fault: Callable[[str], Exception],
  function: Callable[..., Any] | None,
  but: tuple[type[Exception], ...] = (SourceError,),
) -> Iterator[None]:
  """A context for code that is not ours, which leaves the working folder as it was.

  Args:
    fault: makes an exception of ours of what `described` says of theirs.
    function: whose code it is; None: a module's, while it is imported.
    but: exceptions that pass.
  """
  here = os.getcwd()
  try:
    yield
  except but:
    raise
  except BaseException as error:
    if isinstance(error, KeyboardInterrupt) and threading.current_thread().name == 'MainThread':
      raise
    raise fault(described(error, function)) from None
  finally:
    os.chdir(here)


def _takes_shards(name: str, function: Callable[..., Any]) -> bool:
  """Whether a function has the parameters (shard, num_shards); raises InputError for others."""
  try:
    signature = inspect.signature(function)
  except ValueError:  # A function written in C has no signature.
    return False
  names = list(signature.parameters)
  if _binds(signature, 0, 1) and (not _binds(signature) or names[:2] == ['shard', 'num_shards']):
    return True
  if not _binds(signature):
    raise InputError(
      f'--source {name} has the parameters {signature}; it must have none, or (shard, num_shards)'
    )
  return False


def _binds(signature: inspect.Signature, *arguments: int) -> bool:
  try:
    signature.bind(*arguments)
  except TypeError:
    return False
  return True


def _fill(items: list[Any], iterator: Iterator[Any], most: int) -> bool:
  """Draws items up to the first batch, or `most` -> whether there may be more."""
  for item in iterator:
    items.append(item)
    if len(items) == most or _is_batch(item):
      return True
  return False


def _is_batch(item: Any) -> bool:
  """Tells whether an item is anything but one image's array: a batch, for example."""
  return not (isinstance(item, (tuple, list)) and item and getattr(item[0], 'ndim', 0) == 3)


def _arrays(item: Any) -> tuple[np.ndarray, np.ndarray]:
  """Returns image and label of an item, or those of a batch; raises ValueError for others."""
  try:
    image, label = item
  except (TypeError, ValueError):
    raise ValueError(f'it is {_kind(item)}, not (image, label)') from None
  image = np.asarray(image)
  if image.dtype != np.uint8 or image.ndim not in (3, 4) or image.shape[-3:] != _SHAPE:
    raise ValueError(
      f'its image is {image.dtype} {list(image.shape)}, not uint8 {list(_SHAPE)} or a batch of it'
    )
  label = np.asarray(label)
  if label.dtype.kind not in 'iu':
    raise ValueError(f'its label is {label!r:.40}, not a whole number')
  if label.shape != image.shape[:-3]:
    raise ValueError(
      f'its labels have the shape {list(label.shape)} and its images {list(image.shape)}'
    )
  return image, label


def _size(item: Any) -> int:
  """How many examples an item that was checked has."""
  return np.size(item[1])


def _kind(item: Any) -> str:
  parts = f' of {len(item)}' if isinstance(item, (tuple, list)) else ''
  return f'a {type(item).__name__}{parts}'


def described(error: BaseException, function: Callable[..., Any] | None) -> str:
  """Describes an exception in one line: type, message, and the line of the user's file."""
  frames = list(traceback.extract_tb(error.__traceback__))
  files = {getattr(inspect.unwrap(function), '__code__', None)} if function else set()
  own = {code.co_filename for code in files if code}
  if function is None:  # An error on import: frames of this program and of Python come first.
    frames = [f for f in frames if f.filename != __file__ and 'importlib' not in f.filename]
  inside = [frame for frame in frames if frame.filename in own] or [
    frame for frame in frames if frame.filename != __file__
  ]
  where = f' ({inside[-1].filename}, line {inside[-1].lineno})' if inside else ''
  try:
    message = str(error)
  except BaseException:
    message = 'it has no message that can be shown'
  # What a terminal or TensorFlow could not show: control characters, halves of surrogate pairs.
  shown = ''.join(each if each.isprintable() else ' ' for each in message[:_MOST_SHOWN])
  message = ' '.join(shown.split())
  return f'{type(error).__name__:.80}{": " if message else ""}{message}{where}'


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
      source = PythonSource(name)
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
  """Ends this process when the one that started it ends, in any way."""
  parent = parent_process()
  assert parent
  connection.wait([parent.sentinel])
  os._exit(1)
