"""Synchronous updates between replicas that share one real server; values worked out by hand.

The loss is c * w, so that a replica's gradient is its c. The server stands for the parameter
server: replicas share variables, accumulators and queues by their names.
"""

import re
import time
import types

import pytest
import tensorflow as tf
from outcome import still_waiting

from cifar10.cluster import parameter_server
from cifar10.cluster.control import ControlState, SharedControl
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.sync import SyncChief, SyncWorker
from cifar10.cluster.tf_config import Cluster

LAST_STEP = 3


@pytest.fixture(scope='module')
def server():
  return tf.distribute.Server.create_local_server()


class Replica:
  """One replica's graph, session and hook. Replicas start in their order, the chief first."""

  def __init__(self, server, name, worker, gradient, *, workers=2, needed=2, variables='w', **more):
    self.stopped = False
    self.monitor = SignalMonitor()
    cluster = Cluster(
      {'chief': ('a:1',), 'worker': tuple(f'b:{index}' for index in range(1, workers))},
      'chief' if worker == 0 else 'worker',
      max(worker - 1, 0),
    )
    with tf.Graph().as_default(), tf.compat.v1.container(name):
      step = tf.compat.v1.train.get_or_create_global_step()
      start = tf.constant_initializer(10)
      made = [tf.compat.v1.get_variable(each, [], tf.float32, start) for each in variables]
      optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
      self.control = SharedControl()  # The server of this test is no parameter server.
      self.control.build()
      kind = SyncWorker if worker else SyncChief
      self.hook = kind(
        optimizer,
        cluster,
        needed=needed,
        control=self.control,
        monitor=self.monitor,
        last_step=LAST_STEP,
        **more,
      )
      gradients = [(tf.constant(float(gradient)), variable) for variable in made]
      self.push = self.hook.apply_gradients(gradients, step)
      self.session = tf.compat.v1.Session(server.target)
      if worker == 0:
        self.session.run(tf.compat.v1.global_variables_initializer())
      self.state = [step, *made]
      self.missing = tf.compat.v1.report_uninitialized_variables(self.state)
      self.local_init = tf.compat.v1.local_variables_initializer()
      self.say_done = parameter_server.done_queue().enqueue(0)
    self.begin()

  def begin(self):
    """What begins a session, for the first time or again."""
    while self.session.run(self.missing).size:
      time.sleep(0.01)
    self.session.run(self.local_init)
    self.hook.after_create_session(self.session, None)

  def compute(self):
    """One batch: pushes its gradient."""
    asked = self.hook.before_run(None)
    _, self.fetched = self.session.run([self.push, asked.fetches], asked.feed_dict)

  def wait(self):
    """What comes after the batch: the chief updates, a worker waits for it."""
    context = types.SimpleNamespace(session=self.session, request_stop=self._stop)
    self.hook.after_run(context, types.SimpleNamespace(results=self.fetched))

  def rejoin(self):
    """The chief was started again: the session is created again, and begins with its step."""
    with pytest.raises(tf.errors.AbortedError, match='the chief was started again'):
      self.wait()
    self.begin()

  def values(self):
    """(global step, w), and the other variables."""
    return tuple(self.session.run(self.state))

  def _stop(self):
    self.stopped = True


@pytest.fixture
def make(server, request):
  made = []

  def make(worker, gradient, **more):
    name = re.sub('[^a-z]', '', request.node.name)  # A container of its own for each test.
    made.append(Replica(server, name, worker, gradient, **more))
    return made[-1]

  yield make
  for replica in made:
    replica.session.close()


def update(chief, *workers):
  """A batch of each worker and of the chief, and the chief's update."""
  for replica in (*workers, chief):
    replica.compute()
  chief.wait()


def test_an_update_is_made_of_the_mean(make):
  """w = 10 - 0.5 (1 + 3) / 2 = 9, then 8, then 7, where step 3 ends both."""
  chief, worker = make(0, 1), make(1, 3)
  chief.session.run(chief.say_done)
  for step, value in [(1, 9), (2, 8), (3, 7)]:
    assert not chief.stopped
    update(chief, worker)
    worker.wait()
    assert chief.values() == worker.values() == (step, value)
  assert chief.stopped
  assert worker.stopped


@pytest.mark.parametrize(('in_order', 'value'), [(False, 9.5), (True, 10 - 2 / 3)])
def test_gradients_are_added_in_the_workers_order(make, in_order, value):
  """float32 rounds 2^25 + 3 to 2^25 + 4: in order 2^25 + 3 - 2^25 is 4, as they arrive it is 3.

  The chief has 2^25; the second worker's -2^25 comes before the first one's 3. The mean of the
  three is 1, and w = 10 - 0.5; or in order 4 / 3, and w = 10 - 2 / 3.
  """
  replicas = [
    make(worker, gradient, workers=3, needed=3, in_order=in_order)
    for worker, gradient in enumerate([2.0**25, 3, -(2.0**25)])
  ]
  replicas[0].compute()
  replicas[2].compute()
  replicas[1].compute()
  replicas[0].wait()
  assert replicas[0].values() == (1, pytest.approx(value))


def test_the_order_is_the_same_for_every_bucket(make, monkeypatch):
  """In order 3 + 2^25 - 2^25 is 4, in any other it is 3 or 4. All are 10 - 0.5 * 4 / 3.

  TensorFlow sorts what it adds up by the operations' names: of the fourth bucket they end in 9,
  10 and 11, and `add_n` would begin with 10.
  """
  monkeypatch.setattr(parameter_server, 'BUCKET_BYTES', 4)  # A bucket for each variable.
  replicas = [
    make(worker, gradient, workers=3, needed=3, in_order=True, variables='wxyz')
    for worker, gradient in enumerate([3, 2.0**25, -(2.0**25)])
  ]
  update(replicas[0], replicas[2], replicas[1])
  assert replicas[0].values() == (1, *[pytest.approx(10 - 2 / 3)] * 4)


def test_a_late_gradient_is_dropped_and_its_worker_catches_up(make):
  """One gradient of two is enough. w = 10 - 0.5 = 9.5; 9; and at step 2 both push: 9 - 1 = 8.

  The worker's gradient of step 0 comes at step 1 and counts for nothing: with it step 2 would
  have been at 8.5 or 9.5 - 0.5 * 2.
  """
  chief, worker = make(0, 1, needed=1), make(1, 3, needed=1)
  update(chief)
  update(chief, worker)
  assert chief.values() == (2, 9)
  worker.wait()  # Both go-ons at once: it is at step 2 now, and pushes a gradient that counts.
  update(chief, worker)
  assert chief.values() == (3, 8)


@pytest.mark.parametrize('in_order', [False, True])
def test_a_gradient_of_a_step_that_was_rolled_back_is_dropped(make, in_order):
  """A worker computes its batch of step 1 while the chief dies and goes back to step 0, w = 10.

  Then both push for step 0: w = 10 - 0.5 (1 + 3) / 2 = 9. With the first gradient, 100, in the mean
  it would be far below.
  """
  chief, worker = make(0, 1, in_order=in_order), make(1, 3, in_order=in_order)
  update(chief, worker)
  worker.wait()
  late = make(1, 100, in_order=in_order)  # Another graph of the same worker, which is at step 1.
  chief = make(0, 1, in_order=in_order)
  late.compute()
  worker.rejoin()
  update(chief, worker)
  assert chief.values() == (1, 9)


def test_what_a_dead_worker_left_counts_only_whole(make, monkeypatch):
  """It pushed its gradient of x, not that of w; w waits for the other try. 10 - 0.5 (1 + 3) / 2."""
  monkeypatch.setattr(parameter_server, 'BUCKET_BYTES', 4)  # A bucket for each variable.
  chief, worker = (make(worker, gradient, variables='wx') for worker, gradient in [(0, 1), (1, 3)])
  half = [op for op in worker.push.graph.get_operations() if 'ApplyGradient' in op.type]
  worker.session.run(half[-1], worker.hook.before_run(None).feed_dict)
  chief.compute()
  waiting = still_waiting(chief.wait)
  worker.compute()
  waiting.join(10)
  assert chief.values() == (1, 9, pytest.approx(10 - 0.5 * 7 / 3))


def test_a_chief_that_starts_again_forgets_what_was_pushed(make):
  """The 100 of before is not in the update: 10 - 0.5 (1 + 3) / 2 = 9."""
  chief, worker = make(0, 100), make(1, 3)
  chief.compute()
  worker.compute()
  chief = make(0, 1)
  worker.rejoin()  # Sent on, though its update never came.
  update(chief, worker)
  assert chief.values() == (1, 9)


def test_a_chief_that_is_killed_in_its_last_save_has_its_worker_again(make):
  """The worker, which waits for that save, goes back with the chief: 10 - 0.5 (1 + 3) / 2 = 9."""
  chief, worker = make(0, 1), make(1, 3)
  for _ in range(LAST_STEP - 1):
    update(chief, worker)
    worker.wait()
  update(chief, worker)
  waiting = still_waiting(worker.rejoin)
  chief = make(0, 1)
  waiting.join(10)
  update(chief, worker)
  assert chief.values() == (1, 9)


def test_an_input_that_began_before_the_chief_went_back_begins_again(make):
  """It is that of step 1; the session must be created again, and the input with it, at step 0."""
  chief, worker = make(0, 1), make(1, 3)
  update(chief, worker)
  worker.session.run(worker.local_init)
  make(0, 1)
  with pytest.raises(tf.errors.AbortedError, match='the chief was started again'):
    worker.hook.after_create_session(worker.session, None)


def test_a_worker_that_is_up_first_loses_no_batch(make):
  """It waits for the chief's start, which would have emptied what it had pushed."""
  made = []
  starting = still_waiting(lambda: made.append(make(1, 3)))
  chief = make(0, 1)
  starting.join(10)
  update(chief, *made)
  assert chief.values() == (1, 9)


def test_a_worker_that_joins_during_an_update_waits_for_the_next(make):
  """The token of that update is left, and says nothing that the worker does not know."""
  chief, worker, late = (make(number, 3, workers=3) for number in range(3))
  late.hook._begin(late.session)
  update(chief, worker)
  late.hook._local_step = late.session.run(late.state[0])
  late.compute()
  waiting = still_waiting(late.wait)
  update(chief)  # Two gradients of step 1 are there: the chief's and that of the late worker.
  waiting.join(10)
  assert late.hook._local_step == 2


@pytest.mark.parametrize('role', [0, 1], ids=['chief', 'worker'])
def test_sigterm_ends_the_wait(make, role):
  replica = [make(0, 1), make(1, 3)][role]
  replica.compute()
  waiting = still_waiting(replica.wait)
  replica.monitor.stopping = True
  replica.monitor.wake()
  waiting.join(10)
  assert not waiting.is_alive()
  assert replica.stopped
  assert replica.values() == (0, 10)


def test_an_ordered_end_reaches_a_worker_with_its_token(make):
  """Mean gradient 2, learning rate 0.5: w = 10 - 1."""
  chief, worker = make(0, 1), make(1, 3)
  chief.compute()
  worker.compute()
  chief.control.state = ControlState(ends=True)
  chief.control.tell(chief.session)
  chief.wait()
  chief.session.run(chief.say_done)
  worker.wait()
  assert chief.stopped
  assert worker.stopped
  assert chief.values() == worker.values() == (1, 9)
  chief.control.state = ControlState()
  chief.control.tell(chief.session)  # Other tests share the server.
