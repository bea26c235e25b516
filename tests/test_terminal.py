"""What a person sees on a terminal while a training or a prediction runs there."""

import contextlib
import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import numpy as np
import pyte
import pytest
from checkout import ROOT
from outcome import followed
from PIL import Image

LINES, COLUMNS = 24, 200
STEPS = 400
BAR = re.compile(
  rf' *\d+%\|.*\| step \d+ of {STEPS}  epoch (\d+\.\d)  loss \S+  accuracy \S+  '
  r'learning_rate 0\.\d+  \d+ images/s  \d+ \w+ left'
)
IMAGES_BAR = re.compile(r' *\d+%\|.*\| (evaluating \w+|predicting) +\d+ of (\d+) images  \S+ left')


def screens_of(*flags):
  """The lines of a terminal after each piece of what cifar10_main.py writes to it, and at last."""
  terminal, its_end = pty.openpty()
  fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack('HHHH', LINES, COLUMNS, 0, 0))
  screen, shown = pyte.Screen(COLUMNS, LINES), []
  stream = pyte.ByteStream(screen)
  words = [sys.executable, 'cifar10_main.py', *map(str, flags)]
  started = subprocess.Popen(words, cwd=ROOT, stderr=its_end, stdout=subprocess.DEVNULL)
  os.close(its_end)
  with followed(started), contextlib.suppress(OSError):  # Linux: nobody holds the other end now.
    while piece := os.read(terminal, 4096):
      stream.feed(piece)
      shown.append([line.rstrip() for line in screen.display])
  os.close(terminal)
  assert started.returncode == 0
  return shown


@pytest.mark.slow
def test_bars_tell_how_training_and_prediction_come_along_and_go(data_dir, tmp_path):
  flags = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 16]
  flags += ['--train-steps', STEPS, '--eval-every-steps', STEPS // 2]
  screens = screens_of(*flags, '--data-dir', data_dir, '--job-dir', tmp_path)
  lines = itertools.chain.from_iterable(screens)
  epochs = [float(match[1]) for line in lines if (match := BAR.fullmatch(line))]
  assert epochs
  assert epochs == sorted(epochs)
  assert 0 < epochs[-1] <= STEPS * 8 / 256  # 8 of 256 images a step.
  seen = set()
  for above, line in itertools.chain.from_iterable(map(itertools.pairwise, screens)):
    if match := IMAGES_BAR.fullmatch(line):
      seen.add((match[1], match[2], bool(BAR.fullmatch(above))))
  # Training is over before the last one.
  assert {('evaluating validation', '64', True), ('evaluating eval', '70', False)} <= seen
  left = '\n'.join(filter(None, screens[-1]))
  assert re.findall(r'evaluated at step (\d+)', left) == ['200', '400', '400']
  assert '%|' not in left
  # And then a prediction.
  Image.fromarray(np.zeros([32, 32, 3], np.uint8)).save(tmp_path / 'a.png')
  images = 120 * [tmp_path / 'a.png']
  screens = screens_of('--job-dir', tmp_path, '--mode', 'predict', '--images', *images)
  bars = filter(None, map(IMAGES_BAR.fullmatch, itertools.chain.from_iterable(screens)))
  assert ('predicting', '120') in {(bar[1], bar[2]) for bar in bars}
