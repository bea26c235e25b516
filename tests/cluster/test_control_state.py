"""Orders in a graph: what replicas read before, and after, the chief tells them."""

import numpy as np
import pytest
import tensorflow as tf

from cifar10.cluster.control import ControlState, SharedControl

ORDERS = [
  ControlState(),
  ControlState(ends=True),
  ControlState(learning_rate=0.5),
  ControlState(learning_rate=0.0, muon_learning_rate=0.25),
]


def test_replicas_read_what_the_chief_tells():
  """The schedule says 0.1 and 0.2."""
  with tf.Graph().as_default():
    control = SharedControl()
    control.build()
    rates = control.rates(0.1, 0.2)
    with tf.compat.v1.Session() as session:
      assert ControlState(*session.run(control.values)) == ControlState()  # Nobody has told any.
      np.testing.assert_allclose(session.run(rates), [0.1, 0.2])
      for state in ORDERS:
        control.state = state
        control.tell(session)
        assert ControlState(*session.run(control.values)) == state
      np.testing.assert_allclose(session.run(rates), [0, 0.25])


@pytest.mark.parametrize('rate', [-0.1, -1.0, float('nan'), float('inf'), 1e39])
def test_what_is_no_rate_is_refused(rate):
  with pytest.raises(ValueError, match=r'^muon_learning_rate is .*; it must be finite'):
    ControlState().with_rate('muon_learning_rate', rate)


def test_orders_are_in_no_collection():
  with tf.Graph().as_default() as graph:
    SharedControl().build()
    assert graph.get_all_collection_keys() == []
