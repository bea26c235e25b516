"""What people see on standard error: the log, one line an event, and progress bars."""

import contextlib
import logging
import sys

import tqdm

log = logging.getLogger('cifar10')

# The format of a bar of images, for tqdm.
IMAGES_BAR = '{percentage:3.0f}%|{bar}| {desc} {n_fmt} of {total_fmt} images  {remaining} left'


class _AboveBars(logging.StreamHandler):
  """Writes lines above a progress bar, not into it."""

  def emit(self, record: logging.LogRecord) -> None:
    with tqdm.tqdm.external_write_mode(self.stream):
      super().emit(record)


def set_up(verbose: bool = False) -> None:
  """Shows the program's own log, and TensorFlow's only when asked for."""
  logging.basicConfig(
    format='%(asctime)s %(message)s',
    datefmt='%H:%M:%S',
    level=logging.WARNING,
    handlers=[_AboveBars()],
  )
  log.setLevel(logging.INFO)
  logging.getLogger('tensorflow').setLevel(logging.INFO if verbose else logging.ERROR)


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
