"""All-reduce between processes, worked out by hand: the servers of two tasks in this process."""

import socket
import threading

import numpy as np
import pytest
import tensorflow as tf

from cifar10.cluster import roles
from cifar10.cluster.control import ControlState
from cifar10.cluster.tf_config import Cluster
from cifar10.core import devices
from cifar10.options.run_options import RunOptions

OPTIONS = RunOptions('job', distribute='multi_worker_mirrored')


class Task:
  """One task's graph on its server: SGD with a learning rate of 1 of two variables."""

  def __init__(self, cluster, start, gradient):
    self.role = roles.Role(cluster, OPTIONS)
    config = devices.session_config(device_filters=cluster.device_filters)
    config.experimental.collective_group_leader = '/job:chief/replica:0/task:0'
    servers = tf.train.ClusterSpec(cluster.addresses)
    self._server = tf.distribute.Server(servers, cluster.task_type, 0, config=config)
    with tf.Graph().as_default() as graph, tf.device(f'{cluster.job}/device:CPU:0'):
      step = tf.compat.v1.train.create_global_step()
      self.role.control.build()
      matrix = tf.compat.v1.get_variable('matrix', initializer=tf.fill([2, 3], start))
      scalar = tf.compat.v1.get_variable('scalar', initializer=start)
      optimizer = self.role.optimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), 3)
      pairs = [(tf.fill([2, 3], gradient), matrix), (tf.constant(10 * gradient), scalar)]
      self._update = optimizer.apply_gradients(self.role.exchanged(pairs), step)
      self._values = [matrix, scalar, step]
      self._scaffold = self.role.scaffold().finalize()
      self._session = tf.compat.v1.Session(self._server.target, graph=graph, config=config)

  def begin(self):
    """What the Estimator does: a worker initialises no variable by itself."""
    if self.role.cluster.is_chief:
      self._session.run(self._scaffold.init_op)
    self._session.run(self._scaffold.local_init_op)

  def values(self):
    return self._session.run(self._values)

  def step(self, stops=False):
    """Makes a step -> the vector of orders."""
    self.role.monitor.stopping = stops
    asked = self.role.control.before_run(None)
    return self._session.run([asked.fetches, self._update], asked.feed_dict)[0]


@pytest.fixture(scope='module')
def tasks():
  """A chief with variables 10 and gradients 1 and 10, and a worker with 0 and 3 and 30."""
  with socket.create_server(('127.0.0.1', 0)) as one, socket.create_server(('127.0.0.1', 0)) as two:
    chief, worker = (f'127.0.0.1:{door.getsockname()[1]}' for door in (one, two))
  addresses = {'chief': (chief,), 'worker': (worker,)}
  numbers = {'chief': (10.0, 1.0), 'worker': (0.0, 3.0)}
  return [Task(Cluster(addresses, job), *numbers[job]) for job in numbers]


def both(function, tasks):
  """What both do at the same time: each waits for the other."""
  results = {}
  threads = [
    threading.Thread(  # Not a pool's, for whose end Python would wait.
      target=lambda number, task: results.update({number: function(task)}), args=each, daemon=True
    )
    for each in enumerate(tasks)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60)
  assert len(results) == len(tasks), 'one has failed, or still waits for the other'
  return [results[number] for number in range(len(tasks))]


def test_both_begin_with_the_chiefs_variables_and_make_the_same_updates(tasks):
  """Means 2 and 20: after two steps 10 - 4 and 10 - 40."""
  both(Task.begin, tasks)
  for task in tasks:
    matrix, scalar, step = task.values()
    assert (matrix.tolist(), scalar, step) == ([[10] * 3] * 2, 10, 0)
  for _ in range(2):
    both(Task.step, tasks)
  for task in tasks:
    matrix, scalar, step = task.values()
    assert (matrix.tolist(), scalar, step) == ([[6] * 3] * 2, -30, 2)


def test_the_step_brings_the_chiefs_orders_and_who_stops(tasks):
  chief, worker = tasks
  both(Task.begin, tasks)
  chief.role.control.state = ordered = ControlState(learning_rate=0.25)
  worker.role.control.state = ControlState(ends=True)  # It orders nothing.
  *orders, num_stopping = np.transpose(both(lambda task: task.step(stops=task is worker), tasks))
  for of_task in np.transpose(orders):
    assert ControlState(*of_task) == ordered
  assert num_stopping.tolist() == [1, 1]
