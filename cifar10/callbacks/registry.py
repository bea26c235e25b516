"""All callbacks of a process in the order of their calls, the user's own at the end."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1.train import SessionRunHook

from cifar10.callbacks.base import Callback
from cifar10.callbacks.control import Control
from cifar10.callbacks.metrics import Metrics
from cifar10.callbacks.progress import Progress
from cifar10.callbacks.summaries import Profile, Summaries
from cifar10.callbacks.validation import BestCheckpoint, EarlyStopping
from cifar10.core.errors import CallbackError, InputError
from cifar10.core.user_code import imported, others_code
from cifar10.job.run import Run
from cifar10.options.run_options import first_and_last

# A callback's name, and the function that makes it; a Callback is a session hook, too.
Own = tuple[str, Callable[[Run], SessionRunHook | None]]
# These keep their meaning. After the last two, of a lost parameter server, a session is made again.
_PASSING = (InputError, tf.errors.AbortedError, tf.errors.UnavailableError)


def make_all(run: Run) -> list[Callback]:
  """Returns the callbacks that have something to do in this process."""
  if not _hears(run):
    return [Progress(run)]
  options = run.options
  callbacks: list[Callback] = []
  if options.keep_best:
    # Before `Metrics`, whose event says that an evaluation is done: a disk that is full between
    # them would leave best/ without it for good.
    callbacks.append(BestCheckpoint(run))
  callbacks += [Metrics(run), Summaries(run)]
  rules = (options.stop_at_accuracy, options.stop_without_gain, options.max_minutes)
  if any(rule is not None for rule in rules):
    callbacks.append(EarlyStopping(run))
  if run.is_chief:
    callbacks.append(Control(run))
    if options.profile_steps:
      callbacks.append(Profile(run.job_dir, *first_and_last(options.profile_steps)))
  return [*callbacks, Progress(run), *make_own(run)]


def make_own(run: Run) -> list[Callback]:
  """Returns the user's callbacks of this process.

  Raises:
    CallbackError: a function failed.
    InputError: a function returned something else than a callback, a session hook or None.
  """
  own = run.own_callbacks if _hears(run) else ()
  made = [(name, _checked(name, _named(name, make)(run))) for name, make in own]
  return [_Named(name, hook) for name, hook in made if hook]


def _hears(run: Run) -> bool:
  """Tells whether this process sees the job dir: other workers write nothing, and ask nothing."""
  return run.is_chief or run.cluster.task_type == 'evaluator'


def named_or_given(names: Sequence[str], objects: Any) -> list[Own]:
  """Returns the makers of --callback's names and of objects from Python: one, or an iterable.

  Raises:
    InputError: a name cannot be imported, or an object is no callback.
  """
  own: list[Own] = [(f'--callback {name}', imported('--callback', name)) for name in names]
  for each in objects if isinstance(objects, Iterable) else [objects]:
    _checked('callbacks', each)
    own.append((f'callback {type(each).__name__}', functools.partial(_given, each)))
  return own


def _given(hook: SessionRunHook, run: Run) -> SessionRunHook:
  return hook


def _checked(name: str, hook: Any) -> SessionRunHook | None:
  if not isinstance(hook, (SessionRunHook, type(None))):
    raise InputError(
      f'{name} gives {hook!r:.60}: it must be a cifar10.Callback, a session hook or None'
    )
  return hook


class _Named(Callback):
  """Passes all events on to a callback or a session hook, and names it in its errors."""

  def __init__(self, name: str, hook: SessionRunHook):
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
