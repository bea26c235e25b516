"""Imports and checks a Python function of training examples, and cuts its output into chunks.

The function runs in this process or in processes of its own, a shard of it in each. Each process
puts its chunks into memory that it shares with this one. They are taken from one process after the
other: the order of the examples does not depend on the processes' speed. Nothing here needs
TensorFlow, so that these processes do not load it.
"""

import contextlib
import ctypes
import inspect
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import connection, parent_process
from typing import Any, NamedTuple

import numpy as np

from cifar10.core.errors import InputError, SourceError
from cifar10.core.user_code import described, imported, others_code
from cifar10.data.info import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH

_SHAPE = (HEIGHT, WIDTH, DEPTH)
_CHUNK = 512  # Examples.
# A forked copy of a process in which TensorFlow runs may hang.
_CONTEXT = multiprocessing.get_context('spawn')
_END_SECONDS = 10
_SLOTS = 4  # Chunks that a process makes before the first of them is taken.


class Chunk(NamedTuple):
  """Consecutive examples."""

  images: np.ndarray  # uint8 [n, 32, 32, 3]
  labels: np.ndarray  # int32 [n]


NOTHING = Chunk(np.zeros([0, *_SHAPE], np.uint8), np.zeros([0], np.int32))


class PythonSource:
  """A function that yields the examples of an epoch, or of one shard of it."""

  def __init__(self, name: str, flag: str = '--source'):
    """Imports it.

    Args:
      name: 'package.module:function'.
      flag: the option that names it.

    Raises:
      InputError: it cannot be imported, does not exist, or has other parameters.
    """
    self.name = name
    self._said = f'{flag} {name}'
    self._function = imported(flag, name)
    self.takes_shards = _takes_shards(self._said, self._function)
    self._made: dict[tuple[int, int], Iterable[Any]] = {}

  def check_shards(self, wanted_by: str) -> None:
    """Raises InputError unless the function takes shards, which the named option needs."""
    if not self.takes_shards:
      raise InputError(
        f'{self._said} takes no shards, which {wanted_by} needs; give its function the '
        'parameters (shard, num_shards)'
      )

  def check(self, num_classes: int, examples_per_epoch: int | None = None) -> int:
    """Checks the first example; returns how many examples an epoch has.

    Args:
      num_classes: labels are below it.
      examples_per_epoch: what the user says of it; None: the function's result has a `len`; 0: it
        need not have one.

    Raises:
      InputError: there is no example, the first one is wrong, or their number is unknown.
    """
    try:
      with contextlib.closing(self.chunks(num_classes, most=1)) as chunks:
        first = next(chunks)
      count = examples_per_epoch or self._length(len(first.labels))
    except SourceError as error:
      raise InputError(str(error)) from None
    if not count and examples_per_epoch is None:
      raise InputError(
        f'{self._said} does not say how many examples an epoch has (what it returns has no '
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
    fault: Exception | None = None
    items = self._items(shard, num_shards)
    try:
      while not fault:
        drawn, fault = _drawn(items, most, self._function)
        if not drawn:
          break
        chunk = self._chunk(drawn, num_classes, part, number)
        number += len(chunk.labels)
        if len(chunk.labels):
          yield chunk
    finally:
      with others_code(lambda said: self._error(part, number, said), self._function):
        items.close()
    if isinstance(fault, SourceError):
      raise fault
    if fault:
      raise self._error(part, number, str(fault)) from None
    if number == 1 and num_shards == 1:
      raise SourceError(
        f'{self._said} yields no examples; one that returns an iterator must make it anew each time'
      )

  def _items(self, shard: int, num_shards: int) -> Generator[Any, None, None]:
    """Yields what the function does; it is called again for each epoch if it makes an iterator."""
    # Taken out while it is read: a DataFlow has one reader at a time, and a data worker may have
    # several, such as the half-read split of a training that has ended.
    made = self._made.pop((shard, num_shards), None)
    if made is None:
      made = self._function(*((shard, num_shards) if self.takes_shards else ()))
      if not hasattr(made, '__iter__'):
        raise SourceError(f'{self._said} returns {made!r:.60}, which cannot be iterated over')
      if hasattr(made, 'reset_state'):  # tensorpack's, which wants it once in each process.
        made.reset_state()
    items = iter(made)
    try:
      yield from items
    finally:
      if items is not made:
        self._made[shard, num_shards] = made

  def _chunk(self, items: list[Any], num_classes: int, part: str, number: int) -> Chunk:
    """Their examples, the first of which has this number; raises SourceError for a wrong one."""
    with contextlib.suppress(Exception):  # Arrays of others may fail in any way.
      return _put_together(items, num_classes)
    chunks = [NOTHING]
    for item in items:  # One of them is wrong, or there are batches.
      try:
        chunks.append(_put_together([item], num_classes))
      except Exception as error:
        is_ours = isinstance(error, _WrongExampleError)
        fault, place = (*error.args, 0)[:2] if is_ours else (described(error, None), 0)
        before = sum(len(chunk.labels) for chunk in chunks)
        raise self._error(part, number + before + place, fault) from None
    return Chunk(*map(np.concatenate, zip(*chunks)))

  def _length(self, items: int) -> int:
    """Returns how many examples an epoch has (len x the examples of an item), or 0 if unknown."""
    made = self._made.get((0, 1))
    with others_code(lambda said: SourceError(f'{self._said}: {said}'), self._function):
      try:
        return len(made) * items if hasattr(made, '__len__') else 0  # type: ignore[arg-type]
      except NotImplementedError:  # As a DataFlow says that it does not know.
        return 0

  def _error(self, part: str, number: int, fault: str) -> SourceError:
    return SourceError(f'{self._said}{part}: example {number} (counted from 1): {fault}')


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
    self._started = []  # Of each shard: the process, its pipe, its slots, how many are free.
    self._turn: list[int] = []  # Those that have more examples of this epoch, the next one first.
    for shard in shards:
      receiver, sender = _CONTEXT.Pipe(duplex=False)
      memory = _CONTEXT.RawArray(ctypes.c_uint8, _SLOTS * _CHUNK * IMAGE_BYTES)
      free = _CONTEXT.Semaphore(_SLOTS)
      arguments = ((name, num_classes, shard, num_shards), sender, memory, free)
      process = _CONTEXT.Process(target=_run, args=arguments, daemon=True)
      process.start()
      sender.close()  # So that the pipe ends with the process.
      self._started.append((process, receiver, _slots(memory), free))

  def __enter__(self) -> 'SourceProcesses':
    return self

  def __exit__(self, *exception: object) -> None:
    for process, *_ in self._started:
      process.terminate()
    for process, *_ in self._started:
      process.join(_END_SECONDS)
      process.kill()

  def epoch(self) -> Iterator[Chunk]:
    """Yields the rest of an epoch, or the next epoch; raises SourceError if a process fails."""
    is_new = not self._turn
    if is_new:
      self._turn = list(range(len(self._started)))
    count = 0
    while self._turn:
      index = self._turn.pop(0)
      chunk = self._received(index)
      if chunk is not None:
        self._turn.append(index)
        count += len(chunk.labels)
        yield chunk
    if is_new and not count:
      raise SourceError(f'--source {self._name} yields no examples')

  def _received(self, index: int) -> Chunk | None:
    """Returns the next chunk of a process; None at the end of its epoch."""
    process, pipe, slots, free = self._started[index]
    try:
      message = pipe.recv()
      if isinstance(message, np.ndarray):
        images = next(slots)[: len(message)].copy()
        free.release()
        return Chunk(images, message)
    except (EOFError, OSError):
      process.join(_END_SECONDS)
      code = process.exitcode or 0
      how = f'signal {-code}' if code < 0 else f'code {code}'
      raise SourceError(
        f'--source {self._name}: the process of shard {self._shards[index]} of '
        f'{self._num_shards} (number {process.pid}) was ended by {how}'
      ) from None
    if isinstance(message, str):
      raise SourceError(message)
    return None


def _takes_shards(said: str, function: Callable[..., Any]) -> bool:
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
      f'{said} has the parameters {signature}; it must have none, or (shard, num_shards)'
    )
  return False


def _binds(signature: inspect.Signature, *arguments: int) -> bool:
  try:
    signature.bind(*arguments)
  except TypeError:
    return False
  return True


class _FaultError(Exception):
  """What an exception of a source's function says."""


class _WrongExampleError(ValueError):
  """An item is no example: what is wrong, and where in a batch."""


def _drawn(
  items: Iterator[Any], most: int, function: Callable[..., Any]
) -> tuple[list[Any], Exception | None]:
  """The next ones (a batch, or single examples and what comes between), and what ended them."""
  drawn: list[Any] = []
  try:
    with others_code(_FaultError, function):
      drawn.extend(itertools.islice(items, 1))
      if drawn and not _is_batch(drawn[0]):
        # Copies: the function may write the next item, or a block of images, in the same place.
        drawn[0] = _copied(drawn[0])
        drawn.extend(map(_copied, itertools.islice(items, most - 1)))
  except (_FaultError, SourceError) as error:
    return drawn, error
  return drawn, None


def _copied(item: Any) -> Any:
  return tuple(map(_own, item)) if isinstance(item, (tuple, list)) else item


def _own(value: Any) -> Any:
  """A copy of an image, of a label that is an array, or of a batch's."""
  return value if isinstance(value, (int, np.integer)) else np.array(value)


def _put_together(items: list[Any], num_classes: int) -> Chunk:
  """Single examples, or one item of any kind, as a chunk.

  Raises:
    _WrongExampleError: the item is wrong.
    Exception: one of several may be wrong, or some are batches.
  """
  if len(items) == 1:
    images, labels = _arrays(items[0])
    # Copies: a batch may lie where the function writes the next one.
    images, labels = images.copy(), np.atleast_1d(labels)
  else:
    several, numbers = zip(*items, strict=True)
    kinds = {type(number) for number in numbers}
    whole = bool not in kinds and all(issubclass(kind, (int, np.integer)) for kind in kinds)
    if {image.shape for image in several} != {_SHAPE} or not whole:
      raise ValueError
    images = np.concatenate(several, dtype=np.uint8, casting='no')
    labels = np.array(numbers)
  wrong = (labels < 0) | (labels >= num_classes)
  if wrong.any():
    place = int(wrong.argmax())
    raise _WrongExampleError(f'its label is {labels[place]}, not 0 to {num_classes - 1}', place)
  return Chunk(images.reshape([-1, *_SHAPE]), labels.astype(np.int32))


def _is_batch(item: Any) -> bool:
  """Tells whether an item is anything but one image's array: a batch, for example."""
  return not (isinstance(item, (tuple, list)) and item and getattr(item[0], 'ndim', 0) == 3)


def _arrays(item: Any) -> tuple[np.ndarray, np.ndarray]:
  """Returns image and label of an item, or those of a batch; raises ValueError for others."""
  try:
    image, label = item
  except (TypeError, ValueError):
    parts = f' of {len(item)}' if isinstance(item, (tuple, list)) else ''
    raise _WrongExampleError(f'it is a {type(item).__name__}{parts}, not (image, label)') from None
  image = np.asarray(image)
  if image.dtype != np.uint8 or image.ndim not in (3, 4) or image.shape[-3:] != _SHAPE:
    raise _WrongExampleError(
      f'its image is {image.dtype} {list(image.shape)}, not uint8 {list(_SHAPE)} or a batch of it'
    )
  label = np.asarray(label)
  if label.dtype.kind not in 'iu':
    raise _WrongExampleError(f'its label is {label!r:.40}, not a whole number')
  if label.shape != image.shape[:-3]:
    raise _WrongExampleError(
      f'its labels have the shape {list(label.shape)} and its images {list(image.shape)}'
    )
  return image, label


def _slots(memory: Any) -> Iterator[np.ndarray]:
  """Where chunks' images lie, in turn: each uint8 [_CHUNK, 32, 32, 3]."""
  return itertools.cycle(np.frombuffer(memory, np.uint8).reshape([_SLOTS, _CHUNK, *_SHAPE]))


def _run(
  shard: tuple[str, int, int, int], pipe: connection.Connection, memory: Any, free: Any
) -> None:
  """One process: sends chunks' labels, None after each epoch, and what went wrong as text.

  `shard`: the source's name, its classes, which shard, and of how many. The images are in the next
  slot of `memory`; `free` counts the slots that are.
  """
  for number in (signal.SIGINT, signal.SIGHUP):  # They are the training's, which ends this one.
    signal.signal(number, signal.SIG_IGN)
  threading.Thread(target=_end_with_parent, daemon=True).start()
  slots = _slots(memory)
  with contextlib.suppress(BrokenPipeError):  # Nobody reads any more.
    try:
      source = PythonSource(shard[0])
      while True:
        for chunk in source.chunks(*shard[1:]):
          for start in range(0, len(chunk.labels), _CHUNK):
            labels = chunk.labels[start : start + _CHUNK]
            free.acquire()
            next(slots)[: len(labels)] = chunk.images[start : start + _CHUNK]
            pipe.send(labels)
        pipe.send(None)
    except (InputError, SourceError) as error:
      pipe.send(str(error))


def _end_with_parent() -> None:
  """Ends this process when the one that started it ends, in any way."""
  parent = parent_process()
  assert parent
  connection.wait([parent.sentinel])
  os._exit(1)
