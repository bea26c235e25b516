"""--profile-steps: in whole jobs, and from StepStats whose times were made up."""

import json
import os
import re

import pytest
from outcome import refused
from tensorflow.core.framework import step_stats_pb2

from cifar10.callbacks import profile

CPU = '/job:localhost/replica:0/task:0/device:CPU:0'
GPU = '/job:localhost/replica:0/task:0/device:GPU:0'
SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.mark.slow
def test_a_trace_has_the_steps_that_were_asked_for(run_here, data_dir, tmp_path):
  flags = ['--data-dir', data_dir, *SMALL, '--mode', 'train', '--train-steps', 6, '--histograms']
  more = ['--num-cpu-towers', 2]
  result = run_here('--job-dir', tmp_path, *flags, *more, '--profile-steps', '3:4')
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
  again = run_here(
    '--job-dir', tmp_path, *flags, *more, '--train-steps', 8, '--profile-steps', '3:4'
  )
  assert '--profile-steps 3:4: these steps are already done' in again.stderr


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
  line = refused(run_here(*flags, '--profile-steps', value), at_once=True)
  assert (
    line.startswith(f'error: --profile-steps {value}') or f'--profile-steps is "{value}"' in line
  )
  assert said in line
  assert not job.exists()


def test_an_end_before_the_first_of_the_steps_is_said(tmp_path, caplog):
  with caplog.at_level('INFO', 'cifar10'):
    profile.Profile(str(tmp_path), 3, 4).on_train_end('max_minutes', 'm', 2)
  assert caplog.messages == ['--profile-steps 3:4: training ended before']
  assert not os.listdir(tmp_path)


def step_stats(*nodes):
  """From (device, name, timeline label, start, microseconds)."""
  stats = step_stats_pb2.StepStats()
  for device, name, label, start, duration in nodes:
    node = stats.dev_stats.add(device=device).node_stats.add(
      node_name=name,
      timeline_label=label,
      all_start_micros=start,
      op_start_rel_micros=1,
      op_end_rel_micros=1 + duration,
    )
    assert node.node_name == name
  return list(profile.operations(stats))


def test_what_runs_side_by_side_stands_side_by_side():
  """At 10 to 14, 12 to 15, 14 to 16 µs: the third finds the first one's thread free."""
  traced = step_stats(
    (CPU, 'a', 'a = MatMul(x, y)', 9, 4),
    (CPU, 'b', 'b = Add(x, y)', 11, 3),
    (CPU, 'c', 'c = Add(x, y)', 13, 2),
    (GPU, 'd', 'd = Conv2D(x, y)', 9, 7),
  )
  trace = profile.to_json(traced)
  events = [event for event in trace['traceEvents'] if event['ph'] == 'X']
  shown = [(e['args']['name'], e['name'], e['pid'], e['tid'], e['ts'], e['dur']) for e in events]
  assert shown == [
    ('a', 'MatMul', 0, 0, 10, 4),
    ('b', 'Add', 0, 1, 12, 3),
    ('c', 'Add', 0, 0, 14, 2),
    ('d', 'Conv2D', 1, 0, 10, 7),
  ]
  named = {e['pid']: e['args']['name'] for e in trace['traceEvents'] if e['ph'] == 'M'}
  assert named == {0: CPU, 1: GPU}


def test_the_table_adds_up_the_calls_of_an_operation():
  """3000 + 1500 of 6000 µs are 75 %; waiting for another device is left out."""
  traced = step_stats(
    (CPU, 'net/conv', 'net/conv = Conv2D(x, y)', 0, 3000),
    (CPU, 'net/conv', 'net/conv = Conv2D(x, y)', 9000, 1500),
    (CPU, 'add', 'add = AddV2(x, y)', 4000, 1000),
    (CPU, 'next', 'next = IteratorGetNext(x)', 5000, 500),
    (CPU, '_recv', '_recv = _Recv(x)', 0, 90000),
    (CPU, 'RecvTensor', '[1024 bytes]', 0, 90000),
  )
  header, *rows = [line.split() for line in profile.costs_table(traced, rows=2)]
  assert header == ['operation', 'calls', 'total', 'ms', 'share', 'name']
  assert rows == [
    ['Conv2D', '2', '4.50', '75.0%', 'net/conv'],
    ['AddV2', '1', '1.00', '16.7%', 'add'],
  ]


def test_a_gpus_time_is_its_kernels():
  """Not that of starting them, and not twice; the CPU's operations stay."""
  traced = step_stats(
    (GPU, 'net/conv', 'net/conv = Conv2D(x, y)', 0, 10),
    ('/device:GPU:0/stream:all', 'net/conv:Conv2D', 'kernel', 0, 300),
    ('/device:GPU:0/stream:7(Compute)', 'net/conv:Conv2D', 'kernel', 0, 300),
    ('/device:GPU:0/stream:all', 'kernel', 'regs 8@@net/bias:BiasAdd#id 1', 0, 100),
    (CPU, 'next', 'next = IteratorGetNext(x)', 0, 100),
  )
  rows = [line.split() for line in profile.costs_table(traced, rows=10)][1:]
  assert sorted(rows) == [
    ['BiasAdd', '1', '0.10', '20.0%', 'net/bias'],
    ['Conv2D', '1', '0.30', '60.0%', 'net/conv'],
    ['IteratorGetNext', '1', '0.10', '20.0%', 'next'],
  ]


def test_nothing_traced_is_an_empty_table():
  assert [line.split()[0] for line in profile.costs_table([], rows=10)] == ['operation']
