"""--profile-steps in whole jobs."""

import json
import re

import pytest

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.mark.parametrize(
  ('ran', 'more'),  # A strategy finds its devices when a process begins, and only then.
  [
    pytest.param('run_here', [], marks=pytest.mark.slow),
    pytest.param('run_main', ['--distribute', 'mirrored'], marks=pytest.mark.long),
  ],
  ids=['towers', 'mirrored'],
)
def test_a_trace_has_the_steps_that_were_asked_for(request, data_dir, tmp_path, ran, more):
  run = request.getfixturevalue(ran)
  flags = ['--data-dir', data_dir, *SMALL, '--mode', 'train', '--train-steps', 6, '--histograms']
  more = [*more, '--num-cpu-towers', 2]
  result = run('--job-dir', tmp_path, *flags, *more, '--profile-steps', '3:4')
  assert result.returncode == 0, result.stderr
  assert [path.name for path in (tmp_path / 'profile').iterdir()] == ['steps-3-4.json']
  trace = json.loads((tmp_path / 'profile' / 'steps-3-4.json').read_text())
  operations = [event for event in trace['traceEvents'] if event['ph'] == 'X']
  # Forward, by the weights and by the input, of two towers in two steps.
  head = [e for e in operations if 'MatMul' in e['name'] and 'fully_conn' in e['args']['name']]
  assert len(head) == 3 * 2 * 2
  devices = {e['args']['name'][-5:] for e in trace['traceEvents'] if e['ph'] == 'M'}
  assert {'CPU:0', 'CPU:1'} <= devices
  table = re.findall(r'^\S+ (\S+) +(\d+) +\d+\.\d\d +(\d+\.\d)%  \S+$', result.stderr, re.M)
  assert len(table) == 10
  shares = [float(share) for *_, share in table]
  assert shares == sorted(shares, reverse=True)
  again = run('--job-dir', tmp_path, *flags, *more, '--train-steps', 8, '--profile-steps', '3:4')
  assert '--profile-steps 3:4: they were made before' in again.stderr


@pytest.mark.parametrize(
  ('value', 'said'),
  [
    ('110:100', 'must be FIRST:LAST'),
    ('a:b', 'must be FIRST:LAST'),
    ('0:3', 'must be FIRST:LAST'),
    ('5', 'must be FIRST:LAST'),
    ('1:101', 'at most 100'),
    ('5:7', 'goes beyond the last step, 6'),
  ],
)
def test_what_cannot_be_profiled_is_refused(run_here, data_dir, tmp_path, value, said):
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, '--train-steps', 6]
  result = run_here(*flags, '--profile-steps', value)
  assert result.returncode == 2
  [line] = result.stderr.splitlines()
  assert (
    line.startswith(f'error: --profile-steps {value}') or f'--profile-steps is "{value}"' in line
  )
  assert said in line
  assert not job.exists()
