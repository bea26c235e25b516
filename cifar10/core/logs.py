"""The log on standard error, one line per event, and progress bars."""

import contextlib
import functools
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import tqdm
import tqdm.auto

log = logging.getLogger('cifar10')

_IMAGES_BAR = '{percentage:3.0f}%|{bar}| {desc} {n_fmt} of {total_fmt} images  {remaining} left'
_results: IO[str] | None = None  # Standard output, in a process that keeps it for results.


class _Deaf(io.FileIO):
  """A file to which lines are lost where it cannot take them: a log is no reason to end."""

  def write(self, content: Any) -> int:
    try:
      written = super().write(content)
    except OSError:
      written = None
    return len(content) if written is None else written  # None: it is full, and does not block.


@contextlib.contextmanager
def output_for_results() -> Iterator[None]:
  """Keeps standard output for `print_line`: whoever else prints, C++ too, does on standard error.

  What is closed becomes /dev/null, or the next file that is opened would take its place.
  """
  global _results  # noqa: PLW0603
  while (lowest := os.open(os.devnull, os.O_RDWR)) < 3:
    os.set_inheritable(lowest, True)
  os.close(lowest)
  _results = open(os.dup(1), 'w', encoding='utf-8')  # noqa: SIM115
  os.dup2(2, 1)
  streams = [io.BufferedWriter(_Deaf(2, 'w', closefd=False)) for _ in ('stdout', 'stderr')]
  as_text = functools.partial(io.TextIOWrapper, encoding='utf-8', errors='backslashreplace')
  sys.stdout, sys.stderr = (as_text(each, line_buffering=True) for each in streams)
  try:
    yield
  finally:
    os.dup2(_results.fileno(), 1)


_LONGEST = 500  # Of what an error says, in characters.


def one_line(text: str) -> str:
  """What an error says: what steers a terminal escaped, and without the middle of a long text."""
  if len(text) > _LONGEST:
    text = f'{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}'
  return ''.join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class AboveBars(logging.StreamHandler):
  """A log handler that writes above a progress bar."""

  def __init__(self) -> None:
    super().__init__()
    self.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))

  def emit(self, record: logging.LogRecord) -> None:
    with tqdm.tqdm.external_write_mode(self.stream):
      super().emit(record)


def set_up(verbose: bool = False) -> None:
  """Shows the program's own log, and TensorFlow's if `verbose`."""
  logging.basicConfig(level=logging.WARNING, handlers=[AboveBars()])
  log.setLevel(logging.INFO)
  logger = logging.getLogger('tensorflow')
  logger.setLevel(logging.INFO if verbose else logging.ERROR)
  # TensorFlow's writer of events, a thread, tells its error to the main one, which raises it.
  logger.addFilter(lambda record: 'writer thread error' not in record.getMessage())
  threading.excepthook = _thread_failed


def _thread_failed(arguments: threading.ExceptHookArgs) -> None:
  if arguments.thread is None or arguments.thread.name != 'EventLoggerThread':
    threading.__excepthook__(arguments)


def bar(*items: Any, **settings: Any) -> Any:
  """tqdm's bar, or a notebook's own; without the thread that tqdm would leave behind."""
  return type('Bar', (tqdm.auto.tqdm,), {'monitor_interval': 0})(*items, **settings)


def images_bar(total: int | None, desc: str, *, disable: bool = False) -> Any:
  """A bar of images, which vanishes at the end."""
  settings = {'bar_format': _IMAGES_BAR, 'dynamic_ncols': True, 'leave': False}
  return bar(total=total, desc=desc, disable=disable, **settings)


def print_line(line: str) -> None:
  """Writes a line on standard output, above a progress bar that the same terminal may show."""
  out = _results or sys.stdout
  with tqdm.tqdm.external_write_mode(out) if out.isatty() else contextlib.nullcontext():
    try:
      print(line, file=out, flush=True)
    except OSError:  # Python would flush what is left once more at the end.
      os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
      raise


def format_duration(seconds: float) -> str:
  """Formats 7 as '7 s', 90 as '2 min', 5400 as '1 h 30 min'."""
  if seconds < 60:
    return f'{seconds:.0f} s'
  minutes = round(seconds / 60)
  return f'{minutes} min' if minutes < 60 else f'{minutes // 60} h {minutes % 60} min'
