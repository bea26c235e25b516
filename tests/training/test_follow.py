"""Which checkpoint is the last one, for an evaluator that looks at a job before its chief does."""

import json
import types

import pytest

from cifar10.training import follow


def is_last(folder, step, **hparams):
  """Asked by an evaluator with these options, of a job that its chief has not begun to continue."""
  config = {'train_steps': 4, 'train_epochs': 2.0, 'train_batch_size': 32}
  (folder / 'config.json').write_text(json.dumps(config))
  given = {'train_steps': 80_000, 'train_epochs': None, 'train_batch_size': 32, **hparams}
  process = types.SimpleNamespace(
    options=types.SimpleNamespace(job_dir=str(folder)), hparams=types.SimpleNamespace(**given)
  )
  return follow._is_last(process, f'{folder}/model.ckpt-{step}')


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
  assert is_last(tmp_path, step, **hparams) is is_it
