"""A user's own callbacks and session hooks, from --callback or from calls of the Python API."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.core.errors import CallbackError, InputError
from cifar10.core.user_code import imported, others_code
from cifar10.job.run import Run

Hook = tf.compat.v1.train.SessionRunHook  # A Callback is one, too.
Own = tuple[str, Callable[[Run], Any]]  # A callback's name, and the function that makes it.
# These keep their meaning. After the last two, of a lost parameter server, a session is made again.
_PASSING = (InputError, tf.errors.AbortedError, tf.errors.UnavailableError)


def named_or_given(names: Sequence[str], objects: Any) -> list[Own]:
  """Returns these names' functions and the given objects; raises InputError for other things."""
  functions = [(f'--callback {name}', imported('--callback', name)) for name in names]
  for name, function in functions:
    try:
      inspect.signature(function).bind(None)
    except TypeError:
      raise InputError(
        f'{name} has the parameters {inspect.signature(function)}; it must take the run: write '
        'f(run), or __init__(self, run) in a class'
      ) from None
    except ValueError:  # A function written in C has no signature.
      pass
  given = list(objects) if isinstance(objects, Iterable) else [objects]
  for each in given:
    if not isinstance(each, Hook):
      raise InputError(
        f'callbacks has {each!r:.60}; give instances of cifar10.Callback or session hooks'
      )
  return [*functions, *((f'callback {type(each).__name__}', _returning(each)) for each in given)]


def _returning(made: Any) -> Callable[[Run], Any]:
  return lambda run: made


def make_all(run: Run, own: Sequence[Own]) -> list[Callback]:
  """Returns the callbacks that their functions make in this process (the chief or an evaluator).

  Raises:
    CallbackError: a function failed.
    InputError: a function returned something else than a callback, a session hook or None.
  """
  if not run.is_chief and run.cluster.task_type != 'evaluator':
    return []
  made = [(name, _named(name, make)(run)) for name, make in own]
  for name, hook in made:
    if not isinstance(hook, (Hook, type(None))):
      raise InputError(
        f'{name} returned {type(hook).__name__}; it must return a cifar10.Callback, a session hook '
        'or None'
      )
  return [_Named(name, hook) for name, hook in made if hook]


class _Named(Callback):
  """Passes all events on to a callback or a session hook, and names it in its errors."""

  def __init__(self, name: str, hook: Any):
    for event in dir(Callback):
      if not event.startswith('_') and hasattr(hook, event):
        setattr(self, event, _named(f'{name}: {event}', getattr(hook, event)))


def _named(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
  """Returns the function with its errors raised as CallbackError by name."""

  def called(*args: Any) -> Any:
    try:
      with others_code(lambda said: CallbackError(f'{name}: {said}'), call, _PASSING):
        return call(*args)
    except CallbackError as error:  # Its cause may mean something to who called from Python.
      raise error from error.__context__

  return called
