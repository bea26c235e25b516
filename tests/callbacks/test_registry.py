"""Which callbacks a training has: those of the spine, and the parts that its options ask for."""

import types

import pytest

from cifar10.callbacks import registry
from cifar10.core import parts
from cifar10.options.run_options import RunOptions

ALWAYS = ['resources', 'best_checkpoint']


def asked_for(**options):
  """The parts of the program among the callbacks of a training with these options, in order."""
  run = types.SimpleNamespace(options=RunOptions(job_dir='job', **options))
  of_parts = [name for name, is_part in registry._CALLBACKS.items() if is_part]
  return [name for name in of_parts if registry._is_asked_for(name, run)]


@pytest.mark.parametrize(
  ('options', 'more'),
  [
    ({}, []),
    ({'profile_steps': '2:3'}, ['profile']),
    ({'stop_at_accuracy': 0.0}, ['early_stopping']),  # Zero is a value like others.
    ({'max_minutes': 1.0}, ['early_stopping']),
    ({'on_evaluation': 'true'}, ['user_command']),
    ({'debug_shell': True}, ['shell']),
    ({'keep_best': 0}, []),  # Its `make` then makes none.
  ],
)
def test_a_part_is_asked_for_by_its_options(options, more):
  assert sorted(asked_for(**options)) == sorted([*ALWAYS, *more])


def test_a_part_that_is_gone_is_not_asked_for(monkeypatch):
  monkeypatch.delitem(parts.PARTS, 'best_checkpoint')
  monkeypatch.delitem(parts.PARTS, 'resources')
  assert asked_for() == []
