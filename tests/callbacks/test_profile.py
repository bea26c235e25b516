"""--profile-steps in whole jobs."""

import json

import pytest
from outcome import refused, succeeded

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.mark.slow
def test_each_step_that_was_asked_for_has_a_trace(run_here, data_dir, tmp_path):
  """Two towers'; the first step among them."""
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, '--mode', 'train']
  flags += ['--num-cpu-towers', 2, '--profile-steps', '1:2', '--train-steps', 4]
  succeeded(run_here(*flags))
  traces = sorted((tmp_path / 'profile').glob('timeline-*.json'))
  assert [path.name for path in traces] == ['timeline-1.json', 'timeline-2.json']
  for path in traces:
    events = json.loads(path.read_text())['traceEvents']
    named = {e['args']['name'] for e in events if 'MatMul' in e['name'] and e['ph'] == 'X'}
    # Forward, by the weights and by the input, of two towers.
    assert len({name for name in named if 'fully_conn' in name}) == 3 * 2


@pytest.mark.parametrize('value', ['110:100', '0:3', '5', '1:101', '5:7'])
def test_what_cannot_be_profiled_is_refused(run_here, data_dir, tmp_path, value):
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--train-steps', 6]
  assert '--profile-steps' in refused(run_here(*flags, '--profile-steps', value), at_once=True)
  assert not job.exists()
