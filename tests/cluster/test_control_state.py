"""Orders in a graph: what replicas read before, and after, the chief tells them."""

from unittest import mock

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


def test_workers_obey_what_the_chief_tells(graph):
  """The schedule says 0.1 and 0.2."""
  chief, worker = SharedControl(), SharedControl(is_chief=False)
  for control in (chief, worker):
    control.build()
  rates = worker.rates(0.1, 0.2)
  with tf.compat.v1.Session() as session:
    assert obeyed(worker, session) == (ControlState(), False)  # Nobody has told any.
    np.testing.assert_allclose(session.run(rates), [0.1, 0.2])
    chief.after_create_session(session, None)
    for state in ORDERS:
      chief.state = state
      assert obeyed(chief, session) == obeyed(worker, session) == (state, state.ends)
    np.testing.assert_allclose(session.run(rates), [0, 0.25])


def obeyed(control, session):
  """A step of the hook -> its orders, whether it asked for the end."""
  context = mock.Mock(session=session)
  asked = control.before_run(context)
  found = session.run(asked.fetches) if asked else None
  control.after_run(context, mock.Mock(results=found))
  return control.state, context.request_stop.called


@pytest.mark.parametrize('rate', [-0.1, -1.0, float('nan'), float('inf'), 1e39])
def test_what_is_no_rate_is_refused(rate):
  with pytest.raises(ValueError, match=r'^muon_learning_rate is .*; it must be finite'):
    ControlState().with_rate('muon_learning_rate', rate)


def test_orders_are_in_no_collection(graph):
  SharedControl().build()
  assert graph.get_all_collection_keys() == []
