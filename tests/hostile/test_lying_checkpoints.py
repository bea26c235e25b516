"""Checkpoints that are damaged, and checkpoints that lie: with right checksums around nonsense."""

import functools
import json
import os
import random

import harness
import index_tables as tables
import numpy as np
import tensorflow as tf
from harness import Case, cases
from tensorflow.core.framework import tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

TITLE = 'corrupted checkpoints'
BEFORE = '17 of 29'
WAS = (
  'signals 6 and 11 inside TensorFlow for what an index claims, tracebacks for whole checkpoints '
  'with other variables or another step, a wait for memory that is claimed'
)
NOW = (
  '`fault_of` reads the index before TensorFlow does; what does not fit the network is named when '
  'it is restored; training goes on from an older one, unless variables are only missing'
)

MODEL = os.path.join('job', 'model.ckpt-8')
KERNEL = 'resnet/fully_connected/kernel'
STEP = 'global_step'


def tensors(prefix):
  """Those of a checkpoint, by name."""
  reader = tf.train.load_checkpoint(prefix)
  return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@functools.cache
def trained():
  """The tensors of the job's checkpoint."""
  return tensors(os.path.join(harness.JOB, 'model.ckpt-8'))


def save(prefix, values):
  names = sorted(values)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    session.run(
      tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[''] * len(names),
        tensors=[values[name] for name in names],
      )
    )


def older(place):
  """A whole checkpoint of before."""
  save(place.path('job', 'model.ckpt-4'), {**trained(), STEP: np.int64(4)})


def items_lie(change, **how):
  """Changes the (name, value) of the index, the header's first, or `how` its table holds them."""

  def prepare(place):
    older(place)
    with open(place.path(MODEL + '.index'), 'rb') as file:
      items = change(sorted(tables.entries(file.read())))
    place.write(MODEL + '.index', tables.table(items, **how))

  return prepare


def entry_lie(change, name=KERNEL):
  """Changes what the index says of a variable: `change` takes a BundleEntryProto."""

  def of_items(items):
    values = dict(items)
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(values[name.encode()])
    changed = change(entry)
    values[name.encode()] = entry.SerializeToString() if changed is None else changed
    return sorted(values.items())

  return items_lie(of_items)


def shape_lie(*sizes, **more):
  def change(entry):
    dims = [tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in sizes]
    entry.shape.CopyFrom(tensor_shape_pb2.TensorShapeProto(dim=dims, **more))

  return entry_lie(change)


def set_lie(name=KERNEL, **values):
  def change(entry):
    for field, value in values.items():
      setattr(entry, field, value)

  return entry_lie(change, name)


def sliced(entry):
  entry.slices.add().extent.add(start=-(2**62), length=2**62)


def named_dims(entry):
  """Text that is no UTF-8, which no program of TensorFlow's writes."""
  return entry.SerializeToString()[:-2] + b'\x12\x06\x12\x04\x12\x02\xff\xfe'


def header_lie(value):
  return items_lie(lambda items: [(b'', value), *items[1:]])


def table_lie(**how):
  return items_lie(lambda items: items, **how)


HEADER = tensor_bundle_pb2.BundleHeaderProto
_STRING, _VARIANT = types_pb2.DT_STRING, types_pb2.DT_VARIANT
OF_THE_INDEX = {
  'a negative shape': shape_lie(-64, -10),
  'a shape of minus 2 to the 63': shape_lie(-(2**63)),
  'one negative dimension': shape_lie(64, -10),
  'an overflowing shape': shape_lie(2**40, 2**40),
  'a shape of 2 to the 62': shape_lie(2**62),
  'a shape that overflows to its size': shape_lie(2**62 + 160, 4),
  '254 dimensions': shape_lie(*[1] * 254),
  '255 dimensions': shape_lie(*[1] * 255),
  '300 dimensions': shape_lie(*[1] * 300),
  '40 dimensions': shape_lie(*[1] * 40),
  'an unknown rank': shape_lie(unknown_rank=True),
  'a smaller shape': shape_lie(3),
  'type 0': set_lie(dtype=0),
  'type 99': set_lie(dtype=99),
  'type 120': set_lie(dtype=120),
  'type of a reference': set_lie(dtype=101),
  'type minus 1': set_lie(dtype=-1),
  'type text': set_lie(dtype=_STRING),
  'type variant': set_lie(dtype=_VARIANT),
  'type resource': set_lie(dtype=types_pb2.DT_RESOURCE),
  'type double': set_lie(dtype=types_pb2.DT_DOUBLE),
  'shard 7': set_lie(shard_id=7),
  'shard minus 1': set_lie(shard_id=-1),
  'a negative offset': set_lie(offset=-8),
  'an offset behind the end': set_lie(offset=2**50),
  'an offset of 2 to the 63 less 1': set_lie(offset=2**63 - 1),
  'a negative size': set_lie(size=-2560),
  'a size of 2 to the 62': set_lie(size=2**62),
  'slices': entry_lie(sliced),
  'an entry of nonsense': entry_lie(lambda entry: b'\xff' * 20),
  'an entry of nothing': entry_lie(lambda entry: b''),
  'half an entry': entry_lie(lambda entry: entry.SerializeToString()[:-3]),
  'a dimension named in bytes': entry_lie(named_dims),
  'no shards': header_lie(HEADER(num_shards=0).SerializeToString()),
  'minus 1 shards': header_lie(HEADER(num_shards=-1).SerializeToString()),
  'a billion shards': header_lie(HEADER(num_shards=10**9).SerializeToString()),
  'the other byte order': header_lie(HEADER(num_shards=1, endianness=1).SerializeToString()),
  'a header of nonsense': header_lie(b'\xff\xff'),
  'a block behind the end': table_lie(handle=(2**40, 100)),
  'a block of 2 to the 62': table_lie(handle=(0, 2**62)),
  'a block of minus 1': table_lie(handle=(0, -1)),
  'no room for the index of blocks': table_lie(footer=(0, 2**62)),
  'an index of blocks behind the end': table_lie(footer=(2**62, 10)),
  'compressed blocks': table_lie(kind=b'\1'),
  'an unknown compression': table_lie(kind=b'\7'),
  'restarts behind the end': table_lie(restarts=[0, 2**31]),
  'a hundred thousand restarts': table_lie(restarts=[0] * 10**5),
  'a place of a megabyte': table_lie(handle=b'\x80' * 10**6 + b'\0'),
  'a block ten thousand times': table_lie(times=10**4),
  'no header': items_lie(lambda items: items[1:]),
  'nothing but a header': items_lie(lambda items: items[:1]),
  'names twice': items_lie(lambda items: sorted([*items, *items[1:]])),
  'names out of order': items_lie(lambda items: [items[0], *items[:0:-1]]),
  'a name of bytes': items_lie(lambda items: [*items, (b'z\xff', items[-1][1])]),
  'a name of a slice': items_lie(lambda items: [items[0], (b'\0\1x', items[1][1]), *items[1:]]),
  'a name of a megabyte': items_lie(lambda items: [*items, (b'z' * 10**6, items[-1][1])]),
}


def saved(change):
  """Writes a whole checkpoint in which `change` has changed the tensors by name."""

  def prepare(place):
    older(place)
    values = dict(trained())
    change(values)
    save(place.path(MODEL), values)

  return prepare


def put(name, value):
  return saved(lambda values: values.update({name: np.asarray(value)}))


def without(name):
  return saved(lambda values: values.pop(name))


MOMENTUM = f'{KERNEL}/Momentum'
MISFITS = {  # Of the network's variables, which all commands read.
  'another shape': put(KERNEL, np.zeros([3, 3], np.float32)),
  'the transposed shape': put(KERNEL, np.zeros([10, 64], np.float32)),
  'the same numbers in another shape': put(KERNEL, np.zeros([640], np.float32)),
  'a scalar': put(KERNEL, np.float32(0)),
  'nothing in it': put(KERNEL, np.zeros([0, 10], np.float32)),
  'doubles': put(KERNEL, np.zeros([64, 10])),
  'whole numbers': put(KERNEL, np.zeros([64, 10], np.int32)),
  'texts': put(KERNEL, np.full([64, 10], b'x')),
}
SLOT = put(MOMENTUM, np.zeros([3, 3], np.float32))
STEPS = {
  'a step of text': put(STEP, b'eight'),
  'a step of a float': put(STEP, np.float32(8.5)),
  'a step of a vector': put(STEP, np.int64([8, 9])),
  'a step below 0': put(STEP, np.int64(-8)),
  'a step of 32 bits': put(STEP, np.int32(8)),
  'a step of a truth': put(STEP, np.bool_(True)),
  'no step': without(STEP),
}


def went_on(place, ended):
  """From the older checkpoint, the newer one set aside."""
  assert os.path.exists(place.path('job', 'damaged', 'model.ckpt-8.index'))
  steps = [
    name
    for name in ('model.ckpt-8', 'model.ckpt-10')
    if os.path.exists(place.path('job', f'{name}.index'))
  ]
  assert len(steps) == 1
  assert len(ended.stdout.splitlines()) == 1


def refused(place, ended):
  """No checkpoint is moved: a callback or a layer that was away and is back looks the same."""
  assert not os.path.exists(place.path('job', 'damaged'))
  assert not ended.stdout


KEPT = ('data', 'grey.png')
READERS = ('evaluate', 'predict', 'list', 'dump', 'average', 'export saved_model', 'table')
WARM = ['cifar10_main.py', '--data-dir', 'data', '--job-dir', 'new', '--num-layers', '8']
WARM += ['--train-batch-size', '8', '--train-steps', '2', '--mode', 'train']
RESUMED = {'codes': (0,), 'check': went_on, 'kept': KEPT, 'says': 'damaged'}
LAST_STEP = [*harness.COMMANDS['resume'][:3], '--data-dir', 'data', '--train-steps', '8']


def of_each(lies, commands, codes):
  """Each lie in the way of training, and of one of the other commands in turn."""
  made = []
  for number, (name, lie) in enumerate(lies.items()):
    made.append(Case(f'resume after {name}', 'resume', prepare=lie, **RESUMED))
    command = commands[number % len(commands)]
    made.append(Case(f'{command} of {name}', command, codes, prepare=lie))
  return made


FLIPS = 150


def flipped(seed, end):
  """Some bits of a file changed, or its end cut off, by a seed."""

  def prepare(place):
    older(place)
    chance = random.Random(seed)
    with open(place.path(MODEL + end), 'rb') as file:
      content = bytearray(file.read())
    if seed % 5 == 0:
      content = content[: chance.randrange(len(content))]
    for _ in range(chance.randrange(1, 4) if content else 0):
      content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    place.write(MODEL + end, bytes(content))

  return prepare


def flipped_inside(seed):
  """The same inside of the index's entries, with right checksums around them."""

  def change(items):
    chance = random.Random(seed)
    at = chance.randrange(len(items))
    name, value = items[at]
    changed = bytearray(name + value)
    for _ in range(chance.randrange(1, 4) if changed else 0):
      changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    items[at] = (bytes(changed[: len(name)]), bytes(changed[len(name) :]))
    return items

  return items_lie(change)


DATA = '.data-00000-of-00001'


def in_best(lie):
  """The checkpoint that lies is JOB/best/'s, and the job's latest a whole one."""

  def prepare(place):
    lie(place)
    os.mkdir(place.path('job', 'best'))
    for end in ('.index', DATA):
      os.rename(place.path(MODEL + end), place.path('job', 'best', 'model.ckpt-8' + end))
    best = {'accuracy': 0.5, 'global_step': 8, 'checkpoint': 'model.ckpt-8', 'others': []}
    place.write('job/best/best.json', json.dumps(best))
    place.write('job/checkpoint', 'model_checkpoint_path: "model.ckpt-4"\n')

  return prepare


OF_BEST = {
  'list': ['cifar10.checkpoint', 'list', os.path.join('job', 'best')],
  'dump': ['cifar10.checkpoint', 'dump', os.path.join('job', 'best'), '--out', 'dumped.npz'],
  'evaluate': [*harness.COMMANDS['evaluate'], '--checkpoint', 'best'],
  'export saved_model': [*harness.COMMANDS['export saved_model'], '--checkpoint', 'best'],
}
BEST_LIES = {
  name: lie
  for name, lie in OF_THE_INDEX.items()
  if name in ('a negative shape', 'type 99', 'an entry of nonsense', 'no header')
}
TURNS = ('list', 'dump', 'list', 'evaluate', 'list', 'resume')
CASES = [
  *of_each(OF_THE_INDEX, READERS, (2,)),
  *of_each(MISFITS, ('evaluate', 'predict', 'average', 'export saved_model'), (2,)),
  Case('resume after a slot of another shape', 'resume', prepare=SLOT, **RESUMED),
  *(
    Case(f'{what} {name}', command, (2,), prepare=without(missing), says=missing, check=refused,
         kept=(*KEPT, 'job/checkpoint', 'job/model.ckpt-*'))
    for what, command, name, missing in (
      ('resume after', 'resume', 'a missing slot', MOMENTUM),
      ('resume after', 'resume', 'a missing variable', KERNEL),
      ('resume to the last step after', LAST_STEP, 'a missing variable', KERNEL),
      ('evaluate of', 'evaluate', 'a missing variable', KERNEL),
    )
  ),
  *of_each(STEPS, ('evaluate', 'predict', 'export saved_model', 'table'), (2,)),
  *(Case(f'list of {name}', 'list', (0, 2), prepare=lie) for name, lie in STEPS.items()),
  Case(
    'resume to the last step after another shape', LAST_STEP, (0,),
    prepare=MISFITS['another shape'], check=went_on, kept=KEPT,
  ),
  *(
    Case(f'warm start from {name}', [*WARM, '--warm-start-from', MODEL], (2,), prepare=lie)
    for name, lie in list(OF_THE_INDEX.items())[:8]
  ),
  *(
    Case(f'{command} of best with {name}', words, (2,), prepare=in_best(lie),
         kept=('data', 'grey.png', 'job/best/*', 'job/model.ckpt-4.*'))
    for name, lie in BEST_LIES.items()
    for command, words in OF_BEST.items()
  ),
  *(
    Case(f'{TURNS[seed % 6]} with bits of {what} flipped, {seed}', TURNS[seed % 6], (0, 2),
         prepare=prepare(seed), kept=KEPT)
    for what, prepare in {
      'the index': lambda seed: flipped(seed, '.index'),
      'the data': lambda seed: flipped(seed, DATA),
      'entries': flipped_inside,
    }.items()
    for seed in range(FLIPS if what == 'entries' else FLIPS // 2)
  ),
]  # fmt: skip


@cases(CASES)
def test_lying_checkpoint(run_case, case):
  run_case(case)
