"""The model function: what each mode builds, where it is placed, and what its metrics count."""

import dataclasses
import re
from typing import ClassVar

import gpus
import numpy as np
import pytest
import tensorflow as tf
from graphs import ancestors, examples, run_and_trace
from tiny_network import Tiny, TinyNetwork

from cifar10.cluster import roles
from cifar10.cluster.tf_config import Cluster
from cifar10.data.manifest import CIFAR10
from cifar10.job.run import Placement, Run
from cifar10.ops import own_gradients
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import evaluation, evaluator, model_fn
from estimator_again import estimator as tf_estimator

TINY = from_values({'num_layers': 8, 'train_batch_size': 8, 'train_steps': 10})
MODES = tf_estimator.ModeKeys


def place_towers(count, strategy='CPU'):
  """On GPUs where tests use them, or else on virtual CPUs."""
  return Placement(count, strategy) if gpus.visible() else Placement(0, strategy, count)


def build(mode, where, batch=8, hparams=TINY, *, role=None, on_graph=id, compiles=False):
  """The EstimatorSpec of one mode on random images, cut into shards."""
  images, labels = map(tf.constant, examples(batch))
  n = len(where.tower_devices) if mode == MODES.TRAIN else 1
  tf.compat.v1.train.get_or_create_global_step()
  role = role or roles.Role()
  training = model_fn.Training(role, 80, compiles=compiles, on_graph=on_graph)
  given = where.num_gpus, where.variable_strategy, role.gradients_per_update
  cpus = {'num_cpu_towers': where.num_cpu_towers, 'data_format': where.given_format}
  function = model_fn.get_model_fn(*given, **cpus, training=training)
  if mode == MODES.PREDICT:
    return function({'images': images}, None, mode, hparams)
  shards = tuple(images[i::n] for i in range(n)), tuple(labels[i::n] for i in range(n))
  return function(*shards, mode, hparams)


def devices(graph, types):
  return {op.device for op in graph.get_operations() if op.type in types}


AVERAGE = '/ExponentialMovingAverage'
CONVOLUTIONS = {'Conv2D', 'Conv2DBackpropFilter', 'Conv2DBackpropInput'}


@pytest.mark.parametrize(
  ('where', 'variables', 'convolutions'),
  [
    ((0, 'CPU', 1), {'/device:CPU:0'}, {'/device:CPU:0'}),
    ((0, 'CPU', 2), {'/device:CPU:0'}, {'/device:CPU:0', '/device:CPU:1'}),
    ((1, 'CPU'), {'/device:CPU:0'}, {'/device:GPU:0'}),
    ((1, 'GPU'), {'/device:GPU:0'}, {'/device:GPU:0'}),
    ((2, 'CPU'), {'/device:CPU:0'}, {'/device:GPU:0', '/device:GPU:1'}),
    ((2, 'GPU'), {'/device:GPU:0', '/device:GPU:1'}, {'/device:GPU:0', '/device:GPU:1'}),
  ],
)
def test_variables_and_convolutions_are_placed(graph, where, variables, convolutions):
  build(MODES.TRAIN, Placement(*where))
  trainable = tf.compat.v1.trainable_variables()
  assert {v.device for v in trainable} == variables
  assert devices(graph, CONVOLUTIONS) == convolutions
  # Momentum lives beside its variable, or every update would fetch it.
  slots = {v.op.name: v for v in tf.compat.v1.global_variables()}
  assert all(slots[f'{v.op.name}/Momentum'].device == v.device for v in trainable)


def role_of(workers, ps=2, gradients=0, task=('chief', 0)):
  """The role of a task of so many workers, the chief among them; synchronous with `gradients`."""
  addresses = {
    'chief': ('a:1',),
    'worker': tuple(f'b:{port}' for port in range(1, workers)),
    'ps': tuple(f'c:{port}' for port in range(1, ps + 1)),
  }
  backup = workers - gradients if gradients else 0
  options = RunOptions('job', sync=gradients > 0, backup_workers=backup)
  return roles.Role(Cluster(addresses, *task), options)


@pytest.mark.parametrize('task', [('chief', 0), ('worker', 1)])
def test_parameter_servers_share_the_variables_by_size(graph, task):
  build(MODES.TRAIN, Placement(0, 'CPU', 2), role=role_of(3, task=task))
  held = {f'/job:ps/task:{index}/device:CPU:0': [0] for index in range(2)}
  for v in tf.compat.v1.trainable_variables():
    held[v.device].append(v.shape.num_elements() * v.dtype.size)
  first, second = held.values()
  assert abs(sum(first) - sum(second)) <= max(first + second)
  job, index = task
  towers_here = {f'/job:{job}/task:{index}/device:CPU:{tower}' for tower in range(2)}
  assert devices(graph, CONVOLUTIONS) == towers_here


_WIDTHS = {'network': 'fastnet', 'widths': (32, 48, 64), 'proxy_widths': (24, 24, 24)}
PROXIED = from_values({**_WIDTHS, 'train_batch_size': 8, 'train_steps': 10})


@pytest.mark.parametrize(('num_towers', 'classified'), [(1, {8, 4}), (2, {4, 2})])
def test_a_tower_learns_from_half_of_what_its_proxy_sees(graph, num_towers, classified):
  built = []
  build(MODES.TRAIN, Placement(0, 'CPU', num_towers), hparams=PROXIED, on_graph=built.append)
  heads = [op for op in graph.get_operations() if re.search('/fully_connected/MatMul$', op.name)]
  assert {op.outputs[0].shape[0] for op in heads} == classified
  assert len(heads) == 2 * num_towers
  trained = [v.op.name for v in tf.compat.v1.trainable_variables()]
  assert len(trained) == len(set(trained)) == 2 * 14
  assert sum(name.startswith('fastnet/proxy/') for name in trained) == 14
  [seen] = built
  assert set(seen.loss_parts) == {'cross_entropy', 'weight_penalty', 'proxy_cross_entropy'}
  assert not any('/proxy/' in variable.op.name for _, variable in seen.gradients)


@pytest.mark.parametrize('gradients', [0, 3], ids=['async', 'sync'])
def test_averages_are_computed_beside_their_variables(graph, gradients):
  """On the parameter servers, or every variable and its average would travel at each step."""
  hparams = dataclasses.replace(TINY, ema_decay=0.9)
  build(MODES.TRAIN, Placement(0, 'CPU'), hparams=hparams, role=role_of(3, gradients=gradients))
  variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
  averages = {name: v for name, v in variables.items() if name.endswith(AVERAGE)}
  assert len(averages) > 20
  for name, average in averages.items():
    assert average.device == variables[name.removesuffix(AVERAGE)].device
    assert average.device.startswith('/job:ps/')
    [update] = [op for op in average.handle.consumers() if op.type == 'AssignSubVariableOp']
    moved = update.inputs[1].op
    assert {op.device for op in (update, moved, moved.inputs[1].op)} == {average.device}


@pytest.mark.parametrize(
  ('workers', 'gradients', 'first_boundary'),
  [
    # The batch is 8 and an epoch 80 examples; the first boundary is epoch 82: example 6,560.
    (1, 0, 820),
    (2, 0, 820),  # Asynchronous: a global step is one worker's batch.
    (3, 0, 820),
    (2, 2, 410),  # Synchronous: a global step is all workers' batches,
    (3, 3, 274),  # 6,560 / 24 = 273.3,
    (3, 2, 410),  # or those of all but the backup worker.
  ],
)
def test_epochs_count_what_an_update_is_made_of(graph, workers, gradients, first_boundary):
  seen = []
  role = role_of(workers, gradients=gradients)
  build(MODES.TRAIN, Placement(0, 'CPU'), role=role, on_graph=seen.append)
  needed = ancestors(seen[0].scalars['learning_rate'].op, controls=False)
  [reached] = [op for op in needed if op.type == 'GreaterEqual' and op.inputs[1].shape == [3]]
  assert tf.get_static_value(reached.inputs[1])[0] == first_boundary


@pytest.mark.parametrize('num_towers', [1, 2])
def test_a_tower_reads_each_variable_once(graph, num_towers):
  """Its layer and its weight penalty share the value that comes from a server."""
  build(MODES.TRAIN, Placement(0, 'CPU', num_towers), role=role_of(2))
  for variable in tf.compat.v1.trainable_variables():
    reads = [op for op in variable.handle.consumers() if op.type == 'ReadVariableOp']
    assert len([op for op in reads if op.name.startswith('tower_')]) == num_towers, variable.op.name


@pytest.mark.parametrize(
  ('role', 'moving'),
  [
    ({}, ['tower_0']),
    ({'gradients': 3}, ['tower_0']),
    ({'gradients': 3, 'task': ('worker', 0)}, []),  # The chief's move them.
  ],
)
def test_only_tower_0_moves_the_averages(graph, role, moving):
  towers_here = Placement(0, 'CPU', 2)
  spec = build(MODES.TRAIN, towers_here, **({'role': role_of(3, **role)} if role else {}))
  variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
  moving_mean = variables['resnet/init/batch_norm/moving_mean']
  updates = [op for op in moving_mean.handle.consumers() if op.type == 'AssignSubVariableOp']
  assert len(updates) == 2  # One a tower is built, and tower 0's alone is run.
  run = ancestors(getattr(spec.train_op, 'op', spec.train_op))
  assert [op.name.split('/')[0] for op in updates if op in run] == moving


def test_no_gradient_is_computed_below_what_is_trained(graph):
  frozen = dataclasses.replace(TINY, freeze='resnet/(init|stage)')
  spec = build(MODES.TRAIN, Placement(0, 'CPU'), hparams=frozen)
  kinds = {op.type for op in ancestors(spec.train_op)}
  assert 'Conv2D' in kinds
  assert not {kind for kind in kinds if 'Conv' in kind and 'Backprop' in kind}
  assert not {kind for kind in kinds if 'BatchNormGrad' in kind}


def test_a_gpu_takes_batches_that_were_put_there_a_step_ahead(graph):
  spec = build(MODES.TRAIN, Placement(2, 'CPU'))
  by_type = {}
  for op in graph.get_operations():
    by_type.setdefault(op.type, []).append(op)
  for kind in ('Stage', 'Unstage', 'StageClear'):
    assert [op.device for op in by_type[kind]] == ['/device:GPU:0', '/device:GPU:1']
  images = by_type['Stage'][0].inputs[0]
  for op in by_type['Conv2D']:  # All batches come from where they wait, and none past it.
    sources = ancestors(op, controls=False)
    assert [s.device[-1] for s in sources if s.type == 'Unstage'] == [op.name[len('tower_')]]
    assert images.op not in sources
  assert set(by_type['Stage']) <= ancestors(spec.train_op)


def test_each_tower_needs_a_shard(graph):
  function = model_fn.get_model_fn(0, 'CPU', 1, num_cpu_towers=2)
  with pytest.raises(ValueError, match='num_shards is 1 for 2 towers; make it 2'):
    function(*([tf.constant(part)] for part in examples(8)), MODES.TRAIN, TINY)


@pytest.mark.parametrize('mode', [MODES.EVAL, MODES.PREDICT])
def test_no_optimizer_no_proxy_and_all_towers_outside_training(graph, mode):
  build(mode, Placement(2, 'CPU'), hparams=PROXIED)
  names = {v.op.name for v in tf.compat.v1.global_variables()}
  assert not any('Momentum' in name or '/proxy/' in name for name in names)
  assert not devices(graph, {'Conv2DBackpropFilter'})
  assert devices(graph, CONVOLUTIONS) == {'/device:GPU:0', '/device:GPU:1'}


def run_session():
  session = tf.compat.v1.Session(config=gpus.session_config())
  session.run(tf.compat.v1.global_variables_initializer())
  session.run(tf.compat.v1.local_variables_initializer())
  return session


@pytest.mark.gpu
@pytest.mark.parametrize('strategy', ['CPU', 'GPU'])
def test_a_step_runs_where_it_was_placed(graph, strategy):
  """What TensorFlow itself has put on two devices: towers, variables, and batches that wait."""
  if strategy == 'GPU' and not gpus.visible():
    pytest.skip('no GPU to hold variables; `make gpu` tests it')
  where = place_towers(2, strategy)
  spec = build(MODES.TRAIN, where)
  trained = {v.op.name for v in tf.compat.v1.trainable_variables()}
  metadata = tf.compat.v1.RunMetadata()
  with run_session() as session:
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    session.run(spec.train_op, options=options, run_metadata=metadata)
  ran = {}
  for node in (node for part in metadata.partition_graphs for node in part.node):
    kind = 'Conv2D' if 'Conv2D' in node.op else 'variable' if node.name in trained else node.op
    ran.setdefault(kind, set()).add(re.sub('.*(?=/device)', '', node.device))
  towers_here = set(where.tower_devices)
  assert ran['Conv2D'] == towers_here
  assert ran.get('Stage', set()) == (towers_here if gpus.visible() else set())
  variables = towers_here if strategy == 'GPU' else {'/device:CPU:0'}
  assert ran['variable'] == ran['ResourceApplyMomentum'] == variables


def test_a_step_is_momentum_on_the_mean_gradient(graph):
  """First step of momentum: new = old - learning rate x gradient; a bias's gradient is known.

  At equal logits the bias's gradient is mean softmax - mean one-hot; here it is taken from the
  graph's own logits, and the penalty adds weight decay x bias = 0, as the bias starts at 0.
  """
  spec = build(MODES.TRAIN, Placement(0, 'CPU', 2))
  bias = next(v for v in tf.compat.v1.trainable_variables() if v.op.name.endswith('/bias'))
  logits = [graph.get_tensor_by_name(f'tower_{i}/resnet/fully_connected/add:0') for i in range(2)]
  _, labels = examples(8)
  with run_session() as session:
    tower_logits = session.run(logits)
    session.run(spec.train_op)
    after = session.run(bias)
  expected = np.zeros(10)
  for i, values in enumerate(tower_logits):
    softmax = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    expected += (softmax - np.eye(10)[labels[i::2]]).mean(0) / 2
  np.testing.assert_allclose(after, -0.1 * expected, atol=1e-5)
  assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize(('batch', 'part'), [(1, 1), (10, 4)])
def test_towers_share_a_batch_and_say_of_each_image_what_one_does(batch, part, monkeypatch):
  """Of three; those on GPUs, here CPUs, see as many at a time as in a step of training: 3."""
  answers, values = [], {}
  for num_gpus, num_towers, size in ((0, 1, batch), (0, 3, part), (3, 3, 3)):
    places = [f'/device:CPU:{index}' for index in range(num_towers)]
    monkeypatch.setattr(Placement, 'tower_devices', places)
    where = Placement(num_gpus, 'CPU', num_towers, 'channels_last')
    with tf.Graph().as_default():
      predictions = build(MODES.PREDICT, where, batch).predictions
      variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
      session = run_session()
      values = values or session.run(variables)
      for name, variable in variables.items():
        variable.load(values[name], session)
      said, convolutions = run_and_trace(session, predictions)
      assert set(convolutions) == {(place[-5:], size) for place in places}
      answers.append(said['probabilities'])
  assert answers[0].shape == (batch, 10)
  np.testing.assert_array_equal(said['classes'], answers[2].argmax(1))
  np.testing.assert_allclose(answers[1:], 2 * [answers[0]], rtol=1e-4, atol=1e-5)


LABELS = np.array([0, 0, 1, 2, 3, 3, 3], np.int32)


def seven_examples(batch_size):
  """As input functions for two towers give them: one has the first image, one the rest."""
  dataset = tf.data.Dataset.from_tensor_slices((examples(7, seed=5)[0], LABELS)).batch(batch_size)
  return dataset.map(lambda *batch: tuple((each[:1], each[1:]) for each in batch))


def test_metrics_are_exact_over_uneven_batches(graph):
  """Batches of 3, 3 and 1: means over 7 examples, each counted once."""
  batch = tf.compat.v1.data.make_one_shot_iterator(seven_examples(3)).get_next()
  tf.compat.v1.train.get_or_create_global_step()
  spec = model_fn.get_model_fn(0, 'CPU', 1)(*batch, MODES.EVAL, TINY)
  logits = graph.get_tensor_by_name('resnet/fully_connected/add:0')
  updates = [update for _, update in spec.eval_metric_ops.values()]
  with run_session() as session:
    seen = np.concatenate([session.run([logits, updates])[0] for _ in range(3)])
    metrics = session.run({name: value for name, (value, _) in spec.eval_metric_ops.items()})
    [matrix] = session.run(graph.get_collection(evaluation.MATRIX))
  right = seen.argmax(1) == LABELS
  in_top5 = [label in np.argsort(-row)[:5] for row, label in zip(seen, LABELS, strict=True)]
  shifted = seen - seen.max(1, keepdims=True)
  log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
  expected = np.zeros([10, 10])
  np.add.at(expected, (LABELS, seen.argmax(1)), 1)
  np.testing.assert_array_equal(matrix, expected)
  assert metrics['accuracy'] == pytest.approx(right.mean())
  assert metrics['other_accuracies/top5'] == pytest.approx(np.mean(in_top5))
  cross_entropy = -log_softmax[np.arange(7), LABELS].mean()
  assert metrics['loss_parts/cross_entropy'] == pytest.approx(cross_entropy, rel=1e-4)
  assert metrics['per_class_accuracy/airplane'] == pytest.approx(right[:2].mean())
  assert metrics['per_class_accuracy/cat'] == pytest.approx(right[4:].mean())
  assert np.isnan(metrics['per_class_accuracy/ship'])


def test_the_loss_is_one_mean_over_examples(old_job):
  """Batches of 3, 3 and 1 images: the last image counts as much as any other."""
  run = Run(TINY, RunOptions(str(old_job)), roles.Role(), CIFAR10, Placement(0, 'CPU'))
  checkpoint = f'{old_job}/model.ckpt-8'
  said = {}
  for size in (3, 7):
    kept = evaluator.KeptEvaluation(run, lambda size=size: seven_examples(size))
    assert len(list(kept.batches(checkpoint))) == -(-7 // size)
    said[size] = evaluator.printed(run, 'eval', checkpoint, kept.metrics())
  assert said[3]['loss'] == pytest.approx(said[7]['loss'], rel=1e-5)
  unknown = [name for name, value in said[3]['accuracy_by_class'].items() if value is None]
  assert unknown == list(CIFAR10.classes[4:])


class Plain(TinyNetwork):
  """Without batch norm, whose statistics are each tower's own."""

  def _batch_norm(self, x):
    return x


class PlainFamily(Tiny):
  NETWORK: ClassVar = Plain


def after_two_steps(num_towers, **given):
  """The variables after two steps on one batch, shared by so many towers."""
  hparams = from_values({'train_batch_size': 8, 'train_steps': 10, **given})
  hparams = dataclasses.replace(hparams, family=PlainFamily())
  with tf.Graph().as_default():
    tf.compat.v1.set_random_seed(0)
    spec = build(MODES.TRAIN, place_towers(num_towers), hparams=hparams)
    with run_session() as session:
      for _ in range(2):
        session.run(spec.train_op)
      return {v.op.name: session.run(v) for v in tf.compat.v1.trainable_variables()}


@pytest.mark.gpu
@pytest.mark.parametrize('muon', [0.0, 0.1])
def test_two_towers_make_the_update_of_one(muon):
  """The mean of two shards' gradients is the whole batch's, before Muon makes a direction of it."""
  one, two = (after_two_steps(towers, muon_learning_rate=muon) for towers in (1, 2))
  assert one.keys() == two.keys()
  for name, value in one.items():
    np.testing.assert_allclose(two[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.bfloat16
@pytest.mark.parametrize('num_towers', [1, 2])
def test_compiled_blocks_leave_every_variable_as_it_is(monkeypatch, num_towers):
  """Three blocks a tower, each with its gradient, but in float32 none; all is equal bit by bit."""
  monkeypatch.setattr(own_gradients, '_LARGE', 1)
  cases, results = (('bfloat16', False, 0), ('bfloat16', True, 6), ('float32', True, 0)), []
  for dtype, compiles, calls in cases:
    with tf.Graph().as_default() as graph:
      tf.compat.v1.set_random_seed(1)
      hparams = dataclasses.replace(TINY, dtype=dtype)
      spec = build(MODES.TRAIN, Placement(0, 'CPU', num_towers), hparams=hparams, compiles=compiles)
      kinds = [op.type for op in graph.get_operations() if op.type.endswith('PartitionedCall')]
      assert len(kinds) == calls * num_towers
      with run_session() as session:
        losses = [session.run([spec.loss, spec.train_op])[0] for _ in range(5)]
        results.append([losses, *session.run(tf.compat.v1.global_variables())])
  for plain, compiled in zip(*results[:2], strict=True):
    np.testing.assert_array_equal(plain, compiled)
