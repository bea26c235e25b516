"""All callbacks of a process, in the order of their calls."""

from collections.abc import Sequence

from cifar10.callbacks import (
  best_checkpoint,
  control,
  early_stopping,
  meter,
  metrics,
  own_callback,
  profile,
  progress,
  summaries,
)
from cifar10.callbacks.base import Callback
from cifar10.job.run import Run

_BUILT_IN = (
  # Before `metrics`, whose event says that an evaluation is done: a disk that is full between them
  # would leave best/ without it for good.
  best_checkpoint,
  metrics,
  summaries,
  profile,
  early_stopping,
  control,
  progress,
)


def make_all(run: Run, own: Sequence[own_callback.Own] = ()) -> list[Callback]:
  """Returns the callbacks that have something to do in this process, then the user's `own`."""
  built_in = [callback for module in _BUILT_IN if (callback := module.make(run))]
  callbacks = [*built_in, *own_callback.make_all(run, own)]
  return [meter.Hundreds(run, callbacks), *callbacks]
