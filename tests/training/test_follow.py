"""Which checkpoint is the last one, for an evaluator that looks at a job before its chief does."""

import errno
import json

import pytest

from cifar10.cluster.roles import Role
from cifar10.data.manifest import CIFAR10
from cifar10.job import checkpoints, stop_record, variable_files
from cifar10.job.run import Placement, Run
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import evaluator


def save(path, step):
  """A checkpoint of this step, whatever its name says."""
  variable_files.write_checkpoint(path, {}, step)
  return path


def ended_by(folder, step, name_step=None, **hparams):
  """Asked by an evaluator with these options, of a job that its chief has not begun to continue."""
  config = {'train_steps': 4, 'train_epochs': 2.0, 'train_batch_size': 32}
  (folder / 'config.json').write_text(json.dumps(config))
  hparams = HParams(**{'train_batch_size': 32, **hparams})
  run = Run(hparams, RunOptions(str(folder), num_gpus=0), Role(), CIFAR10, Placement(0, 'CPU'))
  return evaluator._ended_by(run, save(f'{folder}/model.ckpt-{name_step or step}', step))


@pytest.mark.parametrize(
  ('hparams', 'step', 'is_it'),
  [
    ({'train_steps': 40}, 4, False),  # The job had ended at step 4, and is to be trained further.
    ({'train_steps': 40}, 40, True),
    ({'train_epochs': 2.0}, 3, False),
    ({'train_epochs': 2.0}, 4, True),  # As the chief has counted: two epochs are four steps.
    ({'train_epochs': 3.0}, 4, False),  # The chief has yet to count what three are,
    ({'train_epochs': 2.0, 'train_batch_size': 16}, 4, False),  # or two of smaller batches.
  ],
)
def test_the_last_step_is_that_of_this_command(tmp_path, hparams, step, is_it):
  assert ended_by(tmp_path, step, **hparams) == ('train_steps' if is_it else '')


def test_a_step_that_a_worker_made_during_the_save_is_in_the_last_checkpoint(tmp_path):
  """Of an asynchronous cluster that control has stopped: saved as 217, it holds step 218."""
  stop_record.write(str(tmp_path), stop_record.StopReason('control', 'asked to stop'), 218)
  assert ended_by(tmp_path, 218, name_step=217) == 'control'
  assert ended_by(tmp_path, 217) == ''


def test_an_error_that_passes_skips_no_checkpoint(tmp_path, monkeypatch):
  path = save(f'{tmp_path}/model.ckpt-4', 4)
  (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-4"')
  looks = iter([OSError(errno.ESTALE, 'Stale file handle'), 'damaged', ''])

  def fault_of(checkpoint):
    if isinstance(fault := next(looks), OSError):
      raise fault
    return fault

  monkeypatch.setattr(checkpoints, 'fault_of', fault_of)
  assert [evaluator._readable(str(tmp_path)) for _ in range(3)] == ['', '', path]
