"""The log's lines, with a clock that the test turns."""

import logging
import types

import pytest

from cifar10.callbacks import meter, progress
from cifar10.callbacks.base import Callback, Step


class Heard(Callback):
  """Remembers means."""

  def __init__(self):
    self.means = []

  def on_means(self, means):
    self.means.append((means.step, means.values['loss']))


@pytest.mark.parametrize(('step', 'means'), [(3, [(3, 2)]), (2, [(2, 2)]), (0, [])])
def test_the_last_means_end_with_the_last_update(step, means):
  """A synchronous chief that is told to end makes no update of its last batch."""
  heard = Heard()
  hundreds = meter.Hundreds(types.SimpleNamespace(last_step=1000), [heard])
  for number in (1, 2, 3):
    hundreds.on_step_end(Step(number, {'loss': number, 'accuracy': 0.5, 'learning_rate': 0.1}))
  hundreds.on_train_end('SIGTERM', 'SIGTERM came', step)
  assert heard.means == means


def test_progress_counts_examples_of_all_towers_and_workers(monkeypatch, caplog):
  """Half a second a step, 256 examples a step; a line at 10 s and one at 20 s.

  At 10 s step 20 is reached: 20 x 256 / 10 = 512 images/s, and 80 more at 2 a second take 40 s.
  An evaluation of 7 s after step 30 is not training's time: the second line, at step 40, says 512
  images/s, too, and 30 s left. Losses are the step's numbers: their means are 10.5 and 30.5.
  """
  now = {'time': 0.0}
  monkeypatch.setattr(meter.time, 'monotonic', lambda: now['time'])
  caplog.set_level(logging.INFO, logger='cifar10')
  run = types.SimpleNamespace(
    options=types.SimpleNamespace(log_every=10), examples_per_step=256, last_step=100
  )
  lines = progress.ProgressLines(run)
  for step in range(1, 41):
    now['time'] += 0.5
    lines.on_step_end(Step(step, {'loss': step, 'accuracy': 0.5, 'learning_rate': 0.1}))
    if step == 30:
      now['time'] += 7
      lines.on_evaluate_end(None)
  assert [record.getMessage() for record in caplog.records] == [
    'step 20 of 100  loss 10.5  accuracy 0.5  learning_rate 0.1  512 images/s  40 s left',
    'step 40 of 100  loss 30.5  accuracy 0.5  learning_rate 0.1  512 images/s  30 s left',
  ]
