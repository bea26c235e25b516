"""The log's lines and TensorBoard's examples/s, with a clock that the test turns."""

import logging

import pytest
import tensorflow as tf

from cifar10.callbacks import progress


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (0, '0 s'),
    (59, '59 s'),
    (60, '1 min'),
    (90, '2 min'),
    (3600, '1 h 0 min'),
    (5400, '1 h 30 min'),
  ],
)
def test_durations(seconds, text):
  assert progress.format_duration(seconds) == text


def test_progress_counts_examples_of_all_towers_and_workers(monkeypatch, caplog, tmp_path):
  """Half a second a step, 256 examples a step; a line at 10 s and one at 20 s.

  At 10 s step 21 is reached: 21 x 256 / 10 = 537.6 images/s, and 79 more at 2.1 a second take
  37.6 s. At 20 s step 41: 20 x 256 / 10 = 512 images/s, and 59 more at 2 a second take 29.5 s.
  """
  now = {'time': 0.0}
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now['time'])
  caplog.set_level(logging.INFO, logger='cifar10')
  with tf.Graph().as_default():
    step = tf.compat.v1.train.get_or_create_global_step()
    advance, nothing = step.assign_add(1), tf.no_op()
    hook = progress.ProgressHook({'loss': tf.constant(1.5)}, 100, 256, str(tmp_path))
    with tf.compat.v1.train.SingularMonitoredSession([hook]) as session:
      for _ in range(41):
        session.raw_session().run(advance)
        session.run(nothing)
        now['time'] += 0.5
  tf.compat.v1.summary.FileWriterCache.get(str(tmp_path)).flush()
  ours = [record.getMessage() for record in caplog.records if record.name == 'cifar10']
  assert ours == [
    'step 21 of 100  loss 1.5  538 images/s  38 s left',
    'step 41 of 100  loss 1.5  512 images/s  30 s left',
  ]
  [path] = tmp_path.glob('events.*')
  written = [
    (event.step, value.tag, value.simple_value)
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]
  assert written == [
    (21, 'examples_per_second', pytest.approx(537.6)),
    (41, 'examples_per_second', pytest.approx(512)),
  ]
