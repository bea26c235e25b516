"""What people see on standard error: the log, one line an event, and progress bars."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

import tqdm

log = logging.getLogger('cifar10')

# The format of a bar of images, for tqdm.
IMAGES_BAR = '{percentage:3.0f}%|{bar}| {desc} {n_fmt} of {total_fmt} images  {remaining} left'


class _AboveBars(logging.StreamHandler):
  """Writes lines above a progress bar, not into it."""

  def __init__(self) -> None:
    super().__init__()
    self.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))

  def emit(self, record: logging.LogRecord) -> None:
    with tqdm.tqdm.external_write_mode(self.stream):
      super().emit(record)


def set_up(verbose: bool = False) -> None:
  """Shows the program's own log, and TensorFlow's only when asked for."""
  logging.basicConfig(level=logging.WARNING, handlers=[_AboveBars()])
  log.setLevel(logging.INFO)
  logging.getLogger('tensorflow').setLevel(logging.INFO if verbose else logging.ERROR)


@contextlib.contextmanager
def shown(verbose: bool = False) -> Iterator[None]:
  """A context that shows what `set_up` shows, unless the user has configured the program's log."""
  tensorflows = logging.getLogger('tensorflow')
  before = tensorflows.level, log.level, log.propagate
  handlers = [] if log.handlers or log.level else [_AboveBars()]
  tensorflows.setLevel(logging.INFO if verbose else logging.ERROR)
  for handler in handlers:
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
  try:
    yield
  finally:
    level, log.level, log.propagate = before
    tensorflows.setLevel(level)
    for handler in handlers:
      log.removeHandler(handler)


def bar(*items: Any, **settings: Any) -> Any:
  """tqdm's bar, or a notebook's own; without the thread that tqdm would leave behind."""
  from tqdm import auto  # noqa: PLC0415

  return type('Bar', (auto.tqdm,), {'monitor_interval': 0})(*items, **settings)


def print_line(line: str) -> None:
  """Writes a line on standard output, above a progress bar that the same terminal may show."""
  is_seen = sys.stdout.isatty()
  with tqdm.tqdm.external_write_mode(sys.stdout) if is_seen else contextlib.nullcontext():
    print(line, flush=True)


def format_duration(seconds: float) -> str:
  """7 -> '7 s', 90 -> '2 min', 5400 -> '1 h 30 min'."""
  if seconds < 60:
    return f'{seconds:.0f} s'
  minutes = round(seconds / 60)
  return f'{minutes} min' if minutes < 60 else f'{minutes // 60} h {minutes % 60} min'
