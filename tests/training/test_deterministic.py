"""The same seed makes the same network, bit for bit."""

import pytest
from outcome import succeeded
from recomputed import assert_equal

STEPS = 30
FLAGS = [
  *('--network', 'wrn', '--wrn-depth', 10, '--wrn-widen-factor', 1),
  *('--train-batch-size', 8, '--mode', 'train', '--deterministic', '--save-every-steps', 1000),
]
OTHERS = ['--num-cpu-towers=2'], ['--dtype=bfloat16']
LONG = [pytest.param(each, marks=pytest.mark.long) for each in OTHERS]


@pytest.mark.slow
@pytest.mark.parametrize('more', [[], *LONG])
def test_the_same_again_in_one_run_and_in_two(more, run_main, data_dir, tmp_path):
  """A third job, of another seed, shows that the comparison can fail."""
  jobs = {'first': [STEPS], 'second': [STEPS], 'resumed': [12, STEPS], 'other': [STEPS]}
  for job, ends in jobs.items():
    for end in ends:
      flags = [*FLAGS, *more, '--train-steps', end, '--seed', 2 if job == 'other' else 1]
      succeeded(run_main('--data-dir', data_dir, '--job-dir', tmp_path / job, *flags))
  assert_equal(tmp_path / 'first', tmp_path / 'second', STEPS)
  assert_equal(tmp_path / 'first', tmp_path / 'resumed', STEPS)
  with pytest.raises(AssertionError):
    assert_equal(tmp_path / 'first', tmp_path / 'other', STEPS)
