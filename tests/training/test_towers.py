"""Towers: hand-worked averages, equal gradients however many towers, and every device."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run, variable

import model_base
from cifar10.cluster.tf_config import Cluster
from cifar10.job.run import Placement
from cifar10.training import evaluation, towers


def test_averages_by_variable_in_any_order(graph):
  """Each where its variable lives."""
  with tf.compat.v1.device(CPU):
    a, b = variable('a', [0.0, 0.0]), variable('b', 0.0)
  first = [(tf.constant([1.0, 2.0]), a), (tf.constant(10.0), b)]
  second = [(tf.constant(40.0), b), (tf.constant([3.0, 8.0]), a)]
  third = [(tf.constant([5.0, 2.0]), a), (tf.constant(10.0), b)]
  means = [mean for mean, _ in towers.average_gradients([first, second, third])]
  # a: (1 + 3 + 5) / 3 = 3 and (2 + 8 + 2) / 3 = 4; b: (10 + 40 + 10) / 3 = 20.
  a_mean, b_mean = run(means)
  assert a_mean.tolist() == [3, 4]
  assert b_mean == 20
  assert {mean.device for mean in means} == {CPU}


def test_names_variables_that_towers_do_not_share_or_that_have_no_gradient(graph):
  a, b, one = variable('a', 0.0), variable('only_here', 0.0), tf.constant(1.0)
  with pytest.raises(ValueError, match=r'tower 1 and tower 0 do not share.*only_here'):
    towers.average_gradients([[(one, a), (one, b)], [(one, a)]])
  with pytest.raises(ValueError, match='tower 0 has no gradient for: only_here'):
    towers.average_gradients([[(None, b)]])


class Constant(model_base.Layers):
  """These logits, whatever the images and the weights, of these initial values, are."""

  def __init__(self, logits=(), **weights):
    super().__init__(True, 'channels_last', 0.9, 1e-5)
    self._logits, self._weights = logits, weights

  def weight(self, name):
    values = self._weights[name]
    initializer = tf.compat.v1.constant_initializer(values)
    return self._variable(name, np.shape(values), initializer, model_base.HEAD)

  def forward_pass(self, images):
    weights = map(self.weight, self._weights)
    return tf.constant(self._logits, tf.float32) + 0 * sum(map(tf.reduce_sum, weights))


class Twice(Constant):
  """A layer that is called twice: logits w + w and 0."""

  def forward_pass(self, images):
    with tf.compat.v1.variable_scope('layer', reuse=tf.compat.v1.AUTO_REUSE):
      return tf.stack([[self.weight('w') + self.weight('w'), 0.0]])


def tower_of(network, labels=(0,), decay=0.0, label_smoothing=0.0):
  images = tf.zeros([len(labels), 32, 32, 3])
  labels = tf.constant(labels)
  return towers.build_tower(images, labels, network, lambda variable: decay, label_smoothing)


def test_a_variable_that_is_read_twice_has_both_gradients(graph):
  """Of w = 0: the softmax is 1/2 and 1/2, the gradient of w + w is 1/2 - 1, and w's twice that."""
  [(gradient, _)] = tower_of(Twice(w=0.0)).gradients
  assert run(gradient) == -1


def test_loss_by_hand(graph):
  tower = tower_of(Constant([[0] * 10] * 2, weight=[3, 4]), (0, 1), decay=0.1)
  cross_entropy, penalty = run([tower.cross_entropy, tower.weight_penalty])
  # Ten equal logits: ln 10. Half of 3^2 + 4^2 is 12.5, times 0.1.
  assert cross_entropy == pytest.approx(np.log(10))
  assert penalty == pytest.approx(1.25)


def test_smoothed_labels_by_hand(graph):
  """Logits ln 3 and nine zeros: softmax 3/12 and 1/12 each; smoothing 0.2: targets 0.82 and 0.02.

  -(0.82 ln 0.25 + 9 * 0.02 ln (1/12)) = 0.82 * 1.386294 + 0.18 * 2.484907 = 1.584044.
  """
  tower = tower_of(Constant([[np.log(3)] + [0] * 9], weight=[1]), label_smoothing=0.2)
  assert run(tower.cross_entropy) == pytest.approx(1.584044)


def test_labels_of_probabilities_by_hand(graph):
  """As above, of 0.75 and 0.25; smoothed 0.62 and 0.22, and 8 times 0.02."""
  network, labels = Constant([[np.log(3)] + [0] * 9], weight=[1]), [[0.75, 0.25] + [0] * 8]
  tower = tower_of(network, labels)
  smoothed = towers.cross_entropies(tower.labels, tower.logits, 0.2)
  expected = [part * np.log(4) + (1 - part) * np.log(12) for part in (0.75, 0.62)]
  assert run([tower.cross_entropy, smoothed[0]]) == pytest.approx(expected)
  assert run(evaluation.is_correct(tower.labels, tower.logits)) == [1]
  assert run(evaluation.is_correct(tower.labels[:, ::-1], tower.logits)) == [0]


def test_each_variable_has_its_own_penalty(graph):
  """Halves of squares: 0.1 * (9 + 16) / 2 + 0.2 * 4 / 2 = 1.65."""
  network = Constant([[0] * 10], a=[3], b=[4], c=[2])
  network.forward_pass(tf.zeros([1, 32, 32, 3]))
  variable('of_another_network', [5.0])
  penalty = towers.weight_penalty(network, lambda variable: 0.2 if variable.op.name == 'c' else 0.1)
  assert run(penalty) == pytest.approx(1.65)


ONE = Cluster()
CPU, GPU_0, GPU_1 = '/device:CPU:0', '/device:GPU:0', '/device:GPU:1'
PS_0, PS_1 = (f'/job:ps/task:{task}/device:CPU:0' for task in (0, 1))
WORKER = '/job:worker/task:0/device:CPU:0'
SERVERS = Cluster({'chief': ('a:1',), 'worker': ('b:1',), 'ps': ('c:1', 'c:2')}, 'worker', 0)


@pytest.mark.parametrize(
  ('where', 'cluster', 'sizes', 'devices'),
  [
    (Placement(2, 'CPU'), ONE, [5, 50], ([CPU, CPU], GPU_0)),
    # 50 -> GPU 0 (50, 0); 20 -> 1 (50, 20); 20 -> 1 (50, 40); 20 -> 1 (50, 60); 5 -> 0.
    (Placement(2, 'GPU'), ONE, [50, 20, 20, 20, 5], ([GPU_0, *[GPU_1] * 3, GPU_0], GPU_0)),
    # 10 -> ps 0 (10, 0); 30 -> ps 1 (10, 30); 15 -> ps 0 (25, 30); 4 -> ps 0 (29, 30); 9 -> ps 0.
    (Placement(0, 'CPU', 2), SERVERS, [10, 30, 15, 4, 9], ([PS_0, PS_1, *[PS_0] * 3], WORKER)),
  ],
)
def test_variables_are_spread_by_size(graph, where, cluster, sizes, devices):
  """Under tower 0's setter: the variables' devices, and another operation's."""
  first, *_, last = towers.device_setters(where, cluster)
  with tf.compat.v1.device(first):
    created = [variable(f'v{i}', [0.0] * size) for i, size in enumerate(sizes)]
    product = tf.constant(1.0) * 2
  assert ([each.device for each in created], product.device) == devices
  with tf.compat.v1.variable_scope('', reuse=True), tf.compat.v1.device(last):
    again = tf.compat.v1.get_variable('v0', [sizes[0]])  # In another tower.
  assert again.device == created[0].device


def staged_numbers(devices, steps, **session_options):
  """Trains on batches 0, 1, ... of one number a tower, [batch, 10 * batch] -> each step's."""
  numbers = tf.data.Dataset.range(100).map(lambda n: ((n, 10 * n), (n, 10 * n)))
  images, labels = tf.compat.v1.data.make_one_shot_iterator(numbers).get_next()
  staged = towers.Staged(list(zip(images, labels))[: len(devices)], devices)
  fetched = [[images for images, _ in staged.shards], staged.put]
  with tf.compat.v1.train.SingularMonitoredSession([staged], **session_options) as session:
    return [session.run(fetched)[0] for _ in range(steps)]


@pytest.mark.parametrize('devices', [['/cpu:0'], ['/cpu:0', '/cpu:1']], ids=['one', 'two'])
def test_each_step_takes_the_batch_that_the_step_before_put_there(graph, devices):
  found = staged_numbers(devices, 20, config=tf.compat.v1.ConfigProto(device_count={'CPU': 2}))
  assert found == [[step, 10 * step][: len(devices)] for step in range(20)]


def test_a_new_session_leaves_nothing_of_the_one_before():
  server = tf.distribute.Server.create_local_server()
  for _ in range(2):  # On one server, as a worker's sessions are.
    with tf.Graph().as_default():
      assert staged_numbers(['/cpu:0'], 3, master=server.target) == [[0], [1], [2]]
