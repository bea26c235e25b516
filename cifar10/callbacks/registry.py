"""All callbacks of a process in the order of their calls, the user's own at the end."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1.train import SessionRunHook

from cifar10.callbacks.base import Callback
from cifar10.callbacks.control import Control
from cifar10.callbacks.metrics import Metrics
from cifar10.callbacks.progress import Progress
from cifar10.callbacks.validation import BestCheckpoint, EarlyStopping
from cifar10.core.errors import CallbackError, InputError
from cifar10.core.user_code import imported, others_code
from cifar10.job.run import Run

# These keep their meaning. After the last two, of a lost parameter server, a session is made again.
_PASSING = (InputError, tf.errors.AbortedError, tf.errors.UnavailableError)


def make_all(run: Run) -> list[Callback]:
  """Returns the callbacks that have something to do in this process."""
  callbacks: list[Callback] = []
  if _hears(run):
    if run.options.keep_best:
      # Before `Metrics`, whose event says that an evaluation is done: a disk that is full between
      # them would leave best/ without it for good.
      callbacks.append(BestCheckpoint(run))
    callbacks += [Metrics(run), EarlyStopping(run)]
  if run.is_chief:
    callbacks.append(Control(run))
  return [*callbacks, Progress(run), *make_own(run)]


def make_own(run: Run) -> list[Callback]:
  """Returns the user's callbacks of this process.

  Raises CallbackError for a function that fails, InputError for one that returns something else.
  """
  own = run.own_callbacks if _hears(run) else ()
  made = [(name, _checked(name, _named(name, make)(run))) for name, make in own]
  return [_Named(name, hook) for name, hook in made if hook is not None]


def _hears(run: Run) -> bool:
  """Tells whether this process sees the job dir: other workers write nothing, and ask nothing."""
  return run.is_chief or run.cluster.task_type == 'evaluator'


def named_or_given(names: Sequence[str], objects: Any) -> list[tuple[str, Any]]:
  """Returns the makers of --callback's names and of objects from Python: one, or an iterable.

  Raises InputError for a name that cannot be imported, and for an object that is no callback.
  """
  own = [(f'--callback {name}', imported('--callback', name)) for name in names]
  several = isinstance(objects, Iterable) and not isinstance(objects, (str, SessionRunHook))
  for each in objects if several else [objects]:
    hook = _checked('callbacks', each)
    own.append((f'callback {type(each).__name__}', lambda run, hook=hook: hook))
  return own


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
  return others_code(lambda said: CallbackError(f'{name}: {said}'), call, _PASSING)(call)
