"""Saving: what a step's checkpoint holds, and when one is saved."""

import os
import types
from unittest import mock

import pytest
import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.cluster.tf_config import Cluster
from cifar10.options.run_options import RunOptions
from cifar10.training import checkpoint_saver


class _Updates(tf.compat.v1.train.SessionRunHook):
  """Makes a batch's update after the batch, as the chief of synchronous training does."""

  def __init__(self, update):
    self._update = update

  def after_run(self, run_context, run_values):
    run_context.session.run(self._update)


class _Saved(Callback):
  """Reads each checkpoint when it is saved."""

  def __init__(self):
    self.values = []

  def on_save(self, checkpoint, step):
    reader = tf.train.load_checkpoint(checkpoint)
    self.values.append((reader.get_tensor('global_step'), reader.get_tensor('average')))
    assert self.values[-1][0] == step


def _hook(kind, job_dir, callback, is_sync=True, has_evaluator=False, **options):
  """A hook whose checkpoints stay; each third step is due for an evaluation."""
  saver = tf.compat.v1.train.Saver(max_to_keep=9, save_relative_paths=True)
  tf.compat.v1.add_to_collection('savers', saver)
  run = types.SimpleNamespace(job_dir=str(job_dir), evaluates=True)
  run.cluster = Cluster(has_evaluator=has_evaluator)
  run.options = RunOptions(str(job_dir), **{'eval_every_steps': 3, **options})
  run.role = types.SimpleNamespace(is_sync=is_sync)
  return kind(run, [callback])


@pytest.fixture
def counted(graph):
  """The global step, and another variable that counts."""
  step = tf.compat.v1.train.get_or_create_global_step()
  return step, tf.compat.v1.get_variable('average', [], tf.int64, tf.zeros_initializer())


@pytest.mark.parametrize(
  ('options', 'saved'),
  [
    ({'save_every_steps': 3}, [0, 3, 5]),
    ({'save_every_steps': 2}, [0, 2, 3, 4, 5]),
    ({}, [0, 1, 2, 3, 4, 5]),  # Each step takes longer than the time between two.
    ({'has_evaluator': True}, [0, 3, 5]),  # It evaluates all, and --stop-without-gain counts them.
  ],
)
def test_a_checkpoint_is_saved_when_the_later_update_is_made(
  counted, tmp_path, monkeypatch, options, saved
):
  """A batch adds 1 to its average; the update after it counts the step: 3 and 3, not 4 and 3.

  At the start, every third one, at the end; those between them once their time has passed.
  """
  monkeypatch.setattr(checkpoint_saver, 'SECONDS', 0)
  (step, average), seen = counted, _Saved()
  hook = _hook(checkpoint_saver.SaveHook, tmp_path, seen, **options)
  hook._listeners = [listener := mock.Mock(**{'after_save.return_value': None})]
  batch = average.assign_add(1)
  with tf.compat.v1.train.SingularMonitoredSession([hook, _Updates(step.assign_add(1))]) as session:
    for _ in range(5):
      session.run(batch)
  assert seen.values == [(at, at) for at in saved]
  # What an evaluation would follow.
  assert [call.args[1] for call in listener.after_save.call_args_list] == [0, 3, 5]
  files = {path.stem for path in tmp_path.glob('*.index')}
  assert files == {f'model.ckpt-{at}' for at in saved}
  listed = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
  assert [os.path.basename(path) for path in listed] == sorted(files)


class _ReadLate(checkpoint_saver.SaveHook):
  """Whose step is read after the batch's update, as it may be where both are of one batch."""

  def after_run(self, run_context, run_values):
    step = run_context.session.run(self._global_step_tensor)
    super().after_run(run_context, run_values._replace(results=step))


def test_no_step_is_saved_early_where_it_is_read_late(counted, tmp_path):
  """As 3, 7 and 11 were, of a tiny network that saves every 4 steps, in one of 15 trainings."""
  seen, every = _Saved(), {'eval_every_steps': 4, 'save_every_steps': 2}
  hook = _hook(_ReadLate, tmp_path, seen, is_sync=False, **every)
  updates = tf.group(*(variable.assign_add(1) for variable in counted))
  with tf.compat.v1.train.SingularMonitoredSession([hook]) as session:
    for _ in range(9):
      session.run(updates)
  assert seen.values == [(at, at) for at in (0, 2, 4, 6, 8, 9)]
