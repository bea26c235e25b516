"""Callbacks of the user's own: for --callback, and what Python's calls are given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.callbacks.base import Callback, Run
from cifar10.core.errors import CallbackError, InputError
from cifar10.data.python_source import imported, others_code

# A lost parameter server: the session is made again.
_PASSING = (
  InputError,
  tf.errors.AbortedError,
  tf.errors.UnavailableError,
  tf.errors.OutOfRangeError,
)


class Own(NamedTuple):
  """What makes one."""

  name: str
  make: Callable[[Run], Any]


def found(names: Sequence[str], objects: Sequence[Any]) -> list[Own]:
  """The functions of these names, and then objects; raises InputError where there is none."""
  functions = [Own(f'--callback {name}', imported('--callback', name)) for name in names]
  return functions + [
    Own(f'callback {type(each).__name__}', functools.partial(lambda this, run: this, each))
    for each in objects
  ]


def make_all(run: Run, own: Sequence[Own]) -> list[Callback]:
  """Those that have something to do in this process, in the chief and in an evaluator.

  Raises:
    CallbackError: a function failed.
    InputError: what it made is no callback.
  """
  if not run.is_chief and run.cluster.task_type != 'evaluator':
    return []
  made = []
  for name, make in own:
    callback = _naming(name, make)(run)
    if callback is not None and not isinstance(callback, Callback):
      raise InputError(
        f'{name} gives {type(callback).__name__}; it must give a subclass of cifar10.Callback'
      )
    if callback is not None:
      made.append(_Named(name, callback))
  return made


class _Named(Callback):
  """Passes all events on, and names a callback that fails."""

  def __init__(self, name: str, callback: Callback):
    for event in dir(Callback):
      if not event.startswith('_'):
        setattr(self, event, _naming(f'{name}: {event}', getattr(callback, event)))


def _naming(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
  """The function, whose failure has this name."""

  def called(*args: Any) -> Any:
    with others_code(lambda said: CallbackError(f'{name}: {said}'), call, _PASSING):
      return call(*args)

  return called
