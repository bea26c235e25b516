"""--profile-steps in whole jobs."""

import json

import pytest
from outcome import refused, succeeded

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.mark.slow
def test_each_step_that_was_asked_for_has_a_trace(run_here, data_dir, tmp_path):
  """Two towers'; the first step among them."""
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL, '--mode', 'train']
  flags += ['--num-cpu-towers', 2, '--profile-steps', '1:2']
  succeeded(run_here(*flags, '--train-steps', 4))
  traces = sorted((tmp_path / 'profile').glob('timeline-*.json'))
  assert [path.name for path in traces] == ['timeline-1.json', 'timeline-2.json']
  for path in traces:
    events = json.loads(path.read_text())['traceEvents']
    named = {e['args']['name'] for e in events if 'MatMul' in e['name'] and e['ph'] == 'X'}
    # Forward, by the weights and by the input, of two towers.
    assert len({name for name in named if 'fully_conn' in name}) == 3 * 2
    devices = {e['args']['name'].split()[0][-5:] for e in events if e['ph'] == 'M'}
    assert {'CPU:0', 'CPU:1'} <= devices
  again = run_here(*flags, '--train-steps', 6)
  assert '--profile-steps 1:2: these steps are already done' in again.stderr


@pytest.mark.parametrize(
  ('value', 'said'),
  [
    ('110:100', 'must be FIRST:LAST'),
    ('0:3', 'must be FIRST:LAST'),
    ('5', 'must be FIRST:LAST'),
    ('1:101', 'at most 100'),
    ('5:7', 'goes beyond the last step, 6'),
  ],
)
def test_what_cannot_be_profiled_is_refused(run_here, data_dir, tmp_path, value, said):
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--train-steps', 6]
  assert said in refused(run_here(*flags, '--profile-steps', value), at_once=True)
  assert not job.exists()
