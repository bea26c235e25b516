"""What is told of traced steps, from StepStats whose times were made up."""

from tensorflow.core.framework import step_stats_pb2

from cifar10.callbacks import chrome_trace

CPU = '/job:localhost/replica:0/task:0/device:CPU:0'
GPU = '/job:localhost/replica:0/task:0/device:GPU:0'


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
  return list(chrome_trace.operations(stats))


def test_what_runs_side_by_side_stands_side_by_side():
  """At 10 to 14, 12 to 15, 14 to 16 µs: the third finds the first one's thread free."""
  traced = step_stats(
    (CPU, 'a', 'a = MatMul(x, y)', 9, 4),
    (CPU, 'b', 'b = Add(x, y)', 11, 3),
    (CPU, 'c', 'c = Add(x, y)', 13, 2),
    (GPU, 'd', 'd = Conv2D(x, y)', 9, 7),
  )
  trace = chrome_trace.to_json(traced)
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
  header, *rows = [line.split() for line in chrome_trace.table(traced, rows=2)]
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
  rows = [line.split() for line in chrome_trace.table(traced, rows=10)][1:]
  assert sorted(rows) == [
    ['BiasAdd', '1', '0.10', '20.0%', 'net/bias'],
    ['Conv2D', '1', '0.30', '60.0%', 'net/conv'],
    ['IteratorGetNext', '1', '0.10', '20.0%', 'next'],
  ]


def test_nothing_traced_is_an_empty_table():
  assert [line.split()[0] for line in chrome_trace.table([], rows=10)] == ['operation']
