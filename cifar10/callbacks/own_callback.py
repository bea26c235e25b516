"""A user's own callbacks, from --callback or from calls of the Python API."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.core.errors import CallbackError, InputError
from cifar10.core.user_code import imported, others_code
from cifar10.job.run import Run

# A lost parameter server: the session is made again.
_PASSING = (InputError, tf.errors.AbortedError, tf.errors.UnavailableError)
_RESULTS = {'before_run': (type(None), tf.compat.v1.train.SessionRunArgs)}  # Others' are not used.
_NEVER_RUN = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)

Own = tuple[str, Callable[[Run], Any]]  # A callback's name, and the function that makes it.


def named_or_given(names: Sequence[str], objects: Any) -> list[Own]:
  """Returns these names' functions and the given objects; raises InputError for other things."""
  try:
    objects = [objects] if isinstance(objects, Callback) else list(objects)
  except TypeError:
    raise InputError(f'callbacks is {objects!r:.60}; give instances of cifar10.Callback') from None
  for each in objects:
    if not isinstance(each, Callback):
      raise InputError(f'callbacks has {each!r:.60}; give instances of cifar10.Callback alone')
  functions = [(f'--callback {name}', imported('--callback', name)) for name in names]
  for name, function in functions:
    _check_parameters(name, function)
  return functions + [
    (f'callback {type(each).__name__}', functools.partial(lambda this, run: this, each))
    for each in objects
  ]


def _check_parameters(name: str, function: Callable[..., Any]) -> None:
  """Raises InputError unless it can be called with the run."""
  try:
    signature = inspect.signature(function)
  except ValueError:  # A function written in C has no signature.
    return
  try:
    signature.bind(None)
  except TypeError:
    raise InputError(
      f'{name} has the parameters {signature}; it must take the run: write f(run), or '
      '__init__(self, run) in a class'
    ) from None


def make_all(run: Run, own: Sequence[Own]) -> list[Callback]:
  """Returns the callbacks that their functions make in this process (the chief or an evaluator).

  Raises:
    CallbackError: a function failed.
    InputError: a function returned something else than a callback or None, or a callback has a
      method that would never run.
  """
  if not run.is_chief and run.cluster.task_type != 'evaluator':
    return []
  made = []
  for name, make in own:
    callback = _naming(name, make)(run)
    if callback is not None and not isinstance(callback, Callback):
      raise InputError(
        f'{name} returned {type(callback).__name__}; it must return a subclass of cifar10.Callback'
      )
    if callback is not None:
      made.append(_Named(name, callback))
  return made


class _Named(Callback):
  """Passes all events on to a callback, and names the callback in its errors."""

  def __init__(self, name: str, callback: Callback):
    """Raises InputError where calling a method would not run it."""
    for event in dir(Callback):
      if event.startswith('_'):
        continue
      method = getattr(callback, event)
      if any(is_such(method) for is_such in _NEVER_RUN):
        raise InputError(
          f'{name}: {event} is async or a generator, which nothing runs; make it a plain method'
        )
      setattr(self, event, _naming(f'{name}: {event}', method, _RESULTS.get(event, object)))


def _naming(name: str, call: Callable[..., Any], results: Any = object) -> Callable[..., Any]:
  """Returns the function with its errors, and other results, raised as CallbackError by name."""

  def called(*args: Any) -> Any:
    try:
      with others_code(lambda said: CallbackError(f'{name}: {said}'), call, _PASSING):
        result = call(*args)
    except CallbackError as error:  # Its cause may mean something to who called from Python.
      raise error from error.__context__
    if not isinstance(result, results):
      raise CallbackError(
        f'{name} returned {type(result).__name__}; it must return SessionRunArgs or None'
      )
    return result

  return called
