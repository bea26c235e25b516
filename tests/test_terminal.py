"""What a person sees on a terminal while a training runs there."""

import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pyte
import pytest
from checkout import ROOT

pytestmark = pytest.mark.slow

LINES, COLUMNS = 24, 200
STEPS = 400
BAR = re.compile(
  rf' *\d+%\|.*\| step \d+ of {STEPS}  epoch (\d+\.\d)  loss \S+  accuracy \S+  '
  r'learning_rate 0\.\d+  \d+ images/s  \d+ \w+ left'
)
EVALUATION_BAR = re.compile(
  r' *\d+%\|.*\| evaluating (validation|eval) +\d+ of (?:64|70) images  \S+ left'
)


@pytest.fixture
def screens(data_dir, tmp_path):
  """What a terminal showed during a training with two evaluations on the way; the last is empty."""
  terminal, its_end = pty.openpty()
  fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack('HHHH', LINES, COLUMNS, 0, 0))
  flags = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 16]
  flags += ['--train-steps', STEPS, '--eval-every-steps', STEPS // 2]
  flags += ['--data-dir', data_dir, '--job-dir', tmp_path]
  words = ['cifar10_main.py', *map(str, flags)]
  training = subprocess.Popen(
    [sys.executable, *words], cwd=ROOT, stderr=its_end, stdout=subprocess.DEVNULL
  )
  os.close(its_end)
  try:
    shown = list(_shown(terminal))
    assert training.wait(60) == 0
  finally:
    training.kill()
    training.wait()
    os.close(terminal)
  return shown


def _shown(terminal):
  """The lines of a terminal's screen after each piece of what a process writes to it."""
  screen = pyte.Screen(COLUMNS, LINES)
  stream = pyte.ByteStream(screen)
  while True:
    try:
      piece = os.read(terminal, 4096)
    except OSError:  # So Linux tells that nobody holds the other end any more.
      return
    if not piece:
      return
    stream.feed(piece)
    yield [line.rstrip() for line in screen.display]


def test_bars_tell_how_training_comes_along_and_go(screens):
  lines = itertools.chain.from_iterable(screens)
  epochs = [float(match[1]) for line in lines if (match := BAR.fullmatch(line))]
  assert epochs
  assert epochs == sorted(epochs)
  assert 0 < epochs[-1] <= STEPS * 8 / 256  # 8 of 256 images a step.
  seen = set()
  for above, line in itertools.chain.from_iterable(map(itertools.pairwise, screens)):
    if match := EVALUATION_BAR.fullmatch(line):
      seen.add((match[1], bool(BAR.fullmatch(above))))
  assert {('validation', True), ('eval', False)} <= seen  # Training is over before the last one.
  left = '\n'.join(filter(None, screens[-1]))
  assert re.findall(r'evaluated at step (\d+)', left) == ['200', '400', '400']
  assert '%|' not in left
