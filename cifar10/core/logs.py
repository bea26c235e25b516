"""The log on standard error, one line per event, and progress bars."""

import contextlib
import logging
import sys
from collections.abc import Iterator

import tqdm

log = logging.getLogger('cifar10')

# The format of a progress bar of images, for tqdm.
IMAGES_BAR = '{percentage:3.0f}%|{bar}| {desc} {n_fmt} of {total_fmt} images  {remaining} left'


class _AboveBars(logging.StreamHandler):
  """A log handler that writes above a progress bar."""

  def __init__(self) -> None:
    super().__init__()
    self.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))

  def emit(self, record: logging.LogRecord) -> None:
    with tqdm.tqdm.external_write_mode(self.stream):
      super().emit(record)


def set_up(verbose: bool = False) -> None:
  """Shows the program's own log, and TensorFlow's if `verbose`."""
  logging.basicConfig(level=logging.WARNING, handlers=[_AboveBars()])
  log.setLevel(logging.INFO)
  logging.getLogger('tensorflow').setLevel(logging.INFO if verbose else logging.ERROR)


@contextlib.contextmanager
def shown(verbose: bool = False) -> Iterator[None]:
  """A context with the log of `set_up`, unless the user has configured the program's log."""
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


def print_line(line: str) -> None:
  """Writes a line on standard output, above a progress bar on the same terminal."""
  is_seen = sys.stdout.isatty()
  with tqdm.tqdm.external_write_mode(sys.stdout) if is_seen else contextlib.nullcontext():
    print(line, flush=True)


def format_duration(seconds: float) -> str:
  """Formats 7 as '7 s', 90 as '2 min', 5400 as '1 h 30 min'."""
  if seconds < 60:
    return f'{seconds:.0f} s'
  minutes = round(seconds / 60)
  return f'{minutes} min' if minutes < 60 else f'{minutes // 60} h {minutes % 60} min'
