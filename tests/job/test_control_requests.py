"""Orders as text, requests and answers as files, and who is there to obey."""

import os

import pytest

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.job import control_requests, job_config
from cifar10.job.control_requests import Command


@pytest.mark.parametrize(
  ('text', 'command'),
  [
    ('learning_rate=0.05', Command('learning_rate', 0.05)),
    ('learning_rate=1e-3', Command('learning_rate', 0.001)),
    ('learning_rate=0.0', Command('learning_rate', 0.0)),
    ('muon_learning_rate=0.2', Command('muon_learning_rate', 0.2)),
    ('learning_rate=schedule', Command('learning_rate')),
    *((verb, Command(verb)) for verb in ('save', 'evaluate', 'stop', 'pause', 'go-on', 'shell')),
  ],
)
def test_orders(text, command):
  assert control_requests.parse(text) == command
  assert control_requests.parse(str(command)) == command


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', "'' is no request: it must be one of learning_rate=NUMBER|schedule"),
    ('momentum=0.5', "'momentum=0.5' is no request"),
    ('save=1', "'save=1' is no request"),
    ('learning_rate', "'learning_rate' is no request"),
    ('learning_rate=fast', 'learning_rate=fast: it must be a number, or schedule'),
    ('learning_rate=-1', '--learning-rate is -1.0: it must be'),
    ('learning_rate=nan', '--learning-rate is nan: it must be a finite number'),
    ('learning_rate=inf', '--learning-rate is inf: it must be a finite number'),
  ],
)
def test_what_is_no_order(text, message):
  with pytest.raises(InputError) as error:
    control_requests.parse(text)
  assert message in str(error.value)


def test_rates_that_are_remembered_can_be_read_again(tmp_path):
  """0, at the end of a schedule of a callback's own; others are refused before they are written."""
  control_requests.remember_rates(str(tmp_path), {'learning_rate': 0.0})
  for rate in (-0.1, float('nan'), float('inf'), None):
    with pytest.raises(ValueError, match=r'^(--learning-rate is|learning_rate=None)'):
      control_requests.remember_rates(str(tmp_path), {'learning_rate': rate})
  assert control_requests.read_rates(str(tmp_path)) == {'learning_rate': 0.0}


def test_requests_are_taken_once_and_in_order(tmp_path):
  state = [Command('save'), Command('learning_rate', 0.1), Command('stop', None, ('x', 0.5, 'm'))]
  names = [control_requests.request(str(tmp_path), order) for order in state]
  assert control_requests.take(str(tmp_path)) == list(zip(names, state))
  assert control_requests.take(str(tmp_path)) == []
  assert control_requests.take_answer(str(tmp_path), names[0]) is None
  control_requests.answer(str(tmp_path), names[0], True, 'done')
  assert control_requests.take_answer(str(tmp_path), names[0]) == {'ok': True, 'answer': 'done'}
  assert os.listdir(tmp_path / 'control') == []


def test_a_request_can_be_withdrawn(tmp_path):
  name = control_requests.request(str(tmp_path), Command('stop'))
  control_requests.withdraw(str(tmp_path), name)
  control_requests.withdraw(str(tmp_path), name)
  assert control_requests.take(str(tmp_path)) == []


@pytest.mark.parametrize(
  'text',
  [
    '',
    '[]',
    '{}',
    '{"verb": "fly"}',
    '{"verb": "learning_rate", "value": "x"}',
    '{"verb": 3}',
    '{"verb": "stop", "reason": [1]}',
    '{"verb": "stop", "reason": 5}',
  ],
)
def test_a_damaged_request_is_taken_as_none(tmp_path, text):
  (tmp_path / 'control').mkdir()
  (tmp_path / 'control' / 'request-x.json').write_text(text)
  assert control_requests.take(str(tmp_path)) == [('x', None)]


def test_a_request_that_is_withdrawn_while_it_is_read_is_not_obeyed(tmp_path, monkeypatch):
  name = control_requests.request(str(tmp_path), control_requests.Command('stop'))
  read = files.read_object

  def read_and_lose(path):
    content = read(path)
    control_requests.withdraw(str(tmp_path), name)
    return content

  monkeypatch.setattr(files, 'read_object', read_and_lose)
  assert control_requests.take(str(tmp_path)) == []


def test_who_trains(tmp_path):
  assert control_requests.who_trains(str(tmp_path)) == ''
  with job_config.training_lock(str(tmp_path)):
    assert control_requests.who_trains(str(tmp_path)).startswith(f'process {os.getpid()} on ')
  assert control_requests.who_trains(str(tmp_path)) == ''
