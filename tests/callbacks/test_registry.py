"""Which callbacks a training has by itself, and which its options ask for."""

import pytest

from cifar10.callbacks import registry
from cifar10.job import run as job_run
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions

ALWAYS = ['Hundreds', 'BestCheckpoint', 'Metrics', 'Summaries', 'Control', 'ProgressLines']


@pytest.mark.parametrize(
  ('options', 'more'),
  [
    ({}, set()),
    ({'profile_steps': '2:3'}, {'Profile'}),
    ({'stop_at_accuracy': 0.0}, {'EarlyStopping'}),  # Zero is a value like others.
    ({'max_minutes': 1.0}, {'EarlyStopping'}),
  ],
)
def test_a_callback_is_made_if_its_options_are_given(tmp_path, options, more):
  options = RunOptions(job_dir=str(tmp_path), data_dir=str(tmp_path), num_gpus=0, **options)
  run = job_run.begin(from_values({}), options)
  assert {type(each).__name__ for each in registry.make_all(run)} == {*ALWAYS, *more}


def test_no_best_checkpoints_are_kept_if_the_option_is_0(tmp_path):
  options = RunOptions(job_dir=str(tmp_path), data_dir=str(tmp_path), num_gpus=0, keep_best=0)
  run = job_run.begin(from_values({}), options)
  assert 'BestCheckpoint' not in {type(each).__name__ for each in registry.make_all(run)}
