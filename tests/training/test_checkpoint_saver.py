"""Saving: what a step's checkpoint holds, and a job dir that is moved away meanwhile."""

import os
import types

import pytest
import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import StorageError
from cifar10.options.run_options import RunOptions
from cifar10.training import checkpoint_saver


def save_hook(folder, callbacks=(), *, is_sync=False, has_evaluator=False, **options):
  cluster = Cluster(has_evaluator=has_evaluator)
  run = types.SimpleNamespace(job_dir=str(folder), cluster=cluster, evaluates=True)
  run.options = RunOptions(str(folder), **options)
  run.role = types.SimpleNamespace(is_sync=is_sync)
  return checkpoint_saver.SaveHook(run, callbacks)


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


class _Evaluated(tf.compat.v1.train.CheckpointSaverListener):
  """The steps of checkpoints that an evaluation would follow."""

  def __init__(self):
    self.steps = []

  def after_save(self, session, global_step_value):
    self.steps.append(global_step_value)


@pytest.mark.parametrize(
  ('options', 'saved'),
  [
    ({'save_every_steps': 3}, [0, 3, 5]),
    ({'save_every_steps': 2}, [0, 2, 3, 4, 5]),
    ({}, [0, 1, 2, 3, 4, 5]),  # Each step takes longer than the time between two.
    ({'has_evaluator': True}, [0, 3, 5]),  # It evaluates all, and --stop-without-gain counts them.
  ],
)
def test_a_checkpoint_is_saved_when_the_later_update_is_made(tmp_path, monkeypatch, options, saved):
  """A batch adds 1 to its average; the update after it counts the step: 3 and 3, not 4 and 3.

  At the start, every third one, at the end; those between them once their time has passed.
  """
  monkeypatch.setattr(checkpoint_saver, 'SECONDS', 0)
  with tf.Graph().as_default():
    step = tf.compat.v1.train.get_or_create_global_step()
    average = tf.compat.v1.get_variable('average', [], tf.int64, tf.zeros_initializer())
    saver = tf.compat.v1.train.Saver(max_to_keep=9, save_relative_paths=True)
    tf.compat.v1.add_to_collection('savers', saver)
    seen = _Saved()
    hook = save_hook(tmp_path, [seen], is_sync=True, eval_every_steps=3, **options)
    hook._listeners = [evaluated := _Evaluated()]
    hooks = [hook, _Updates(step.assign_add(1))]
    batch = average.assign_add(1)
    with tf.compat.v1.train.SingularMonitoredSession(hooks) as session:
      for _ in range(5):
        session.run(batch)
  assert seen.values == [(at, at) for at in saved]
  assert evaluated.steps == [0, 3, 5]
  files = {path.stem for path in tmp_path.glob('*.index')}
  assert files == {f'model.ckpt-{at}' for at in saved}
  listed = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
  assert [os.path.basename(path) for path in listed] == sorted(files)


def test_a_folder_that_was_moved_away_is_not_made_again(tmp_path):
  job, away = tmp_path / 'job', tmp_path / 'away'
  job.mkdir()
  with tf.Graph().as_default():
    step = tf.compat.v1.train.get_or_create_global_step()
    tf.compat.v1.add_to_collection('savers', tf.compat.v1.train.Saver(save_relative_paths=True))
    hook = save_hook(job)
    hook.begin()
    with tf.compat.v1.Session() as session:
      session.run(step.initializer)
      assert hook.save_now(session, evaluating=False) == f'{job}/model.ckpt-0'
      session.run(step.assign_add(1))
      job.rename(away)
      with pytest.raises(StorageError, match=f'{job} has vanished; put it back'):
        hook.save_now(session, evaluating=False)
  assert not job.exists()
  assert tf.train.latest_checkpoint(str(away)) == f'{away}/model.ckpt-0'
