"""The program's log: one line an event, on standard error."""

import contextlib
import logging
import sys

import tqdm

log = logging.getLogger('cifar10')


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
