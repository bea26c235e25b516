"""Orders as text, requests and answers as files."""

import os

import pytest

from cifar10.core.errors import InputError
from cifar10.job import control_requests
from cifar10.job.stop_record import StopReason


def test_orders():
  assert control_requests.parse('learning_rate=1e-3') == ('learning_rate', 0.001)
  assert control_requests.parse('muon_learning_rate=0.0') == ('muon_learning_rate', 0.0)
  assert control_requests.parse('learning_rate=schedule') == ('learning_rate', None)
  assert control_requests.parse('go-on') == ('go-on', None)


@pytest.mark.parametrize(
  'text',
  ['', 'momentum=0.5', 'learning_rate', 'save=1', 'pause']
  + [f'learning_rate={value}' for value in ('fast', -1, 'nan', 'inf')],
)
def test_what_is_no_order(text):
  with pytest.raises(InputError, match=r'is no request: it must be one of|pause is gone'):
    control_requests.parse(text)


def test_requests_are_taken_once_and_in_order(tmp_path):
  """One that is damaged is taken, too, and will be refused; one that is withdrawn is not."""
  orders = [('save',), ('stop', StopReason('stop_at_accuracy', 'm', 0.5))]
  names = [control_requests.request(str(tmp_path), *order) for order in orders]
  control_requests.withdraw(str(tmp_path), control_requests.request(str(tmp_path), 'save'))
  (tmp_path / 'control' / 'request-x.json').write_text('[]')
  assert control_requests.take(str(tmp_path)) == [
    (names[0], 'save', None),
    (names[1], *orders[1]),
    ('x', 'None', None),
  ]
  assert control_requests.take(str(tmp_path)) == []
  assert control_requests.read_answer(str(tmp_path), names[0]) is None
  control_requests.answer(str(tmp_path), names[0], True, 'done')
  assert control_requests.read_answer(str(tmp_path), names[0]) == {'ok': True, 'answer': 'done'}
  control_requests.withdraw(str(tmp_path), names[0])
  assert os.listdir(tmp_path / 'control') == []
