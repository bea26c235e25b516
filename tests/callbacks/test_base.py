"""The meter: means and epochs; and the log's lines, with a clock that the test turns."""

import logging
import types

import pytest
import tensorflow as tf

from cifar10.callbacks import base, progress
from cifar10.job.run import Run
from cifar10.options.hparams import from_values


class Heard(base.Callback):
  """Remembers means, and the ends of epochs."""

  def __init__(self, run):
    self.run, self.means, self.epochs = run, [], []

  def on_means(self, means):
    self.means.append((means.step, means.values['loss']))

  def on_epoch_end(self, epoch):
    self.epochs.append((self.run.step, epoch))


def heard(*steps, last_step=1000, examples_per_epoch=10):
  """What a callback hears of these steps, each of four examples and with its number as the loss."""
  role = types.SimpleNamespace(counts_steps=False)
  run = types.SimpleNamespace(role=role, step=0, last_step=last_step)
  run.epochs = lambda step: step * 4 // examples_per_epoch
  told = Heard(run)
  meter = base.Meter(run, [told])
  for step in steps:
    values = {'loss': step, 'accuracy': 0.5, 'learning_rate': 0.1}
    meter.after_run(None, tf.compat.v1.train.SessionRunValues((step, values), None, None))
  return meter, told


@pytest.mark.parametrize(('step', 'means'), [(3, [(3, 2)]), (2, [(2, 2)]), (0, [])])
def test_the_last_means_end_with_the_last_update(step, means):
  """A synchronous chief that is told to end makes no update of its last batch."""
  meter, told = heard(1, 2, 3)
  meter.on_train_end('SIGTERM', 'SIGTERM came', step)
  assert told.means == means


def test_means_are_of_a_hundred_steps_and_of_the_rest():
  """1 to 100: 50.5; the last ten: 105.5."""
  _, told = heard(*range(1, 111), last_step=110)
  assert told.means == [(100, 50.5), (110, 105.5)]


def test_epochs_end_after_the_first_step_at_or_beyond_them():
  """Of 10 examples, 4 a step: 12 after step 3, 20 after 5; from 24 to 40 two epochs end at once."""
  _, told = heard(1, 2, 3, 4, 5, 6, 10)
  assert told.epochs == [(3, 1), (5, 2), (10, 3), (10, 4)]


def test_progress_counts_examples_of_all_towers_and_workers(monkeypatch, caplog):
  """Half a second a step, 256 examples a step; a line at 10 s and one at 20 s.

  At 10 s step 20 is reached: 20 x 256 / 10 = 512 images/s. Images have half their side until step
  21, so that each of the 79 whole steps left takes four times as long as the one before them: at 2
  a second 158.5 s.
  An evaluation of 7 s after step 30 is not training's time: the second line, at step 40, says 512
  images/s, too, and 30 s left. Losses are the step's numbers: their means are 10.5 and 30.5. Then
  the chief of a cluster goes back to its checkpoint: from step 15 on, 10 s lead to step 35.
  """
  now = {'time': 0.0}
  monkeypatch.setattr(base.time, 'monotonic', lambda: now['time'])
  caplog.set_level(logging.INFO, logger='cifar10')
  options = types.SimpleNamespace(log_every=10)
  hparams = from_values({'train_steps': 100, 'resolutions': (16.0, 0.21)})
  run = types.SimpleNamespace(
    options=options, hparams=hparams, examples_per_step=256, last_step=100
  )
  run.work = lambda step: Run.work(run, step)
  lines = progress.Progress(run)
  for step in (*range(1, 41), *range(15, 36)):
    now['time'] += 0.5
    lines.on_step_end(base.Step(step, {'loss': step, 'accuracy': 0.5, 'learning_rate': 0.1}))
    if step == 30 and len(caplog.records) == 1:
      now['time'] += 7
      lines.on_evaluate_end(None)
  assert [record.getMessage() for record in caplog.records] == [
    'step 20 of 100  loss 10.5  accuracy 0.5  learning_rate 0.1  512 images/s  3 min left',
    'step 40 of 100  loss 30.5  accuracy 0.5  learning_rate 0.1  512 images/s  30 s left',
    'step 35 of 100  loss 25  accuracy 0.5  learning_rate 0.1  512 images/s  32 s left',
  ]
