"""The log on standard error, one line per event, and progress bars."""

import contextlib
import functools
import logging
import sys

import tqdm
import tqdm.auto

log = logging.getLogger('cifar10')

tqdm.tqdm.monitor_interval = 0  # Or a bar would leave a thread behind.
bar = tqdm.auto.tqdm  # A notebook's own there.
_IMAGES_BAR = '{percentage:3.0f}%|{bar}| {desc} {n_fmt} of {total_fmt} images  {remaining} left'
# A bar of images, which vanishes at the end.
images_bar = functools.partial(bar, bar_format=_IMAGES_BAR, dynamic_ncols=True, leave=False)
_LONGEST = 500  # Of what an error says, in characters.


def one_line(text: str) -> str:
  """What an error says: what steers a terminal escaped, and without the middle of a long text."""
  if len(text) > _LONGEST:
    text = f'{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}'
  return ''.join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class AboveBars(logging.Handler):
  """A log handler that writes on standard error, above a progress bar."""

  def emit(self, record: logging.LogRecord) -> None:
    with contextlib.suppress(OSError):  # Of a full disk, which is no reason to end.
      tqdm.tqdm.write(self.format(record), file=sys.stderr)


def set_up(verbose: bool = False) -> None:
  """Shows the program's log, unless it is configured, and TensorFlow's if `verbose`."""
  logging.getLogger('tensorflow').setLevel(logging.INFO if verbose else logging.ERROR)
  if not (log.handlers or log.level):
    handler = AboveBars()
    handler.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def format_duration(seconds: float) -> str:
  """Formats 7 as '7 s', 90 as '2 min', 5400 as '1 h 30 min'."""
  if round(seconds) < 60:
    return f'{seconds:.0f} s'
  minutes = round(seconds / 60)
  return f'{minutes} min' if minutes < 60 else f'{minutes // 60} h {minutes % 60} min'
