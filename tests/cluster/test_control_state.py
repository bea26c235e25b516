"""Orders in a graph: what replicas read before, and after, the chief tells them."""

import numpy as np
import pytest
import tensorflow as tf

from cifar10.cluster import roles
from cifar10.cluster.control import ControlState, SharedControl, from_vector
from cifar10.cluster.tf_config import Cluster
from cifar10.options.run_options import RunOptions

ORDERS = [
  ControlState(),
  ControlState(ends=True),
  ControlState(learning_rate=0.5),
  ControlState(learning_rate=0.0, muon_learning_rate=0.25),
]


@pytest.mark.parametrize('state', ORDERS)
def test_orders_are_a_vector(state):
  assert from_vector(state.vector()) == state


def test_replicas_read_what_the_chief_tells():
  """The schedule says 0.1 and 0.2."""
  with tf.Graph().as_default():
    control = SharedControl()
    control.build()
    rates = control.rates(0.1, 0.2)
    with tf.compat.v1.Session() as session:
      assert from_vector(session.run(control.values)) == ControlState()  # Nobody has told any.
      np.testing.assert_allclose(session.run(rates), [0.1, 0.2])
      for state in ORDERS:
        control.state = state
        control.tell(session)
        assert from_vector(session.run(control.values)) == state
      np.testing.assert_allclose(session.run(rates), [0, 0.25])


@pytest.mark.parametrize('rate', [-0.1, -1.0, float('nan'), float('inf'), 1e39])
def test_what_is_no_rate_is_refused(rate):
  with pytest.raises(ValueError, match=r'^muon_learning_rate is .*; it must be finite'):
    ControlState().with_rate('muon_learning_rate', rate)


def test_orders_are_in_no_collection():
  with tf.Graph().as_default() as graph:
    SharedControl().build()
    assert graph.get_all_collection_keys() == []


def test_a_cluster_keeps_them_on_its_first_parameter_server():
  cluster = Cluster({'chief': ('a:1',), 'worker': ('b:1',), 'ps': ('c:1', 'd:1')}, 'worker', 0)
  role = roles.choose(cluster, RunOptions('job'))
  with tf.Graph().as_default() as graph:
    role.control.build()
    devices = {op.device for op in graph.get_operations() if op.type == 'VarHandleOp'}
  assert devices == {'/job:ps/task:0/device:CPU:0'}
