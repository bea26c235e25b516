"""best/: which checkpoints it holds, and that best.json never names one that is not there."""

import json
import os

import pytest

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.job import checkpoints


@pytest.fixture
def save(tmp_path):
  """Makes the files of a checkpoint, as TensorFlow names them."""

  def make(step):
    for suffix in ('index', 'meta', 'data-00000-of-00001'):
      (tmp_path / f'model.ckpt-{step}.{suffix}').write_text(f'{suffix} of {step}')
    return str(tmp_path / f'model.ckpt-{step}')

  return make


@pytest.fixture
def keep(tmp_path, save):
  def run(step, accuracy, count=1):
    evaluation = {'accuracy': accuracy, 'global_step': step}
    return checkpoints.keep_best(str(tmp_path), save(step), evaluation, count)

  return run


def kept(tmp_path):
  """The steps whose checkpoints are in the folder."""
  names = os.listdir(tmp_path / 'best')
  return {int(name.split('-')[1].split('.')[0]) for name in names if name != 'best.json'}


def test_the_best_stays(tmp_path, keep):
  assert [keep(1, 0.5), keep(2, 0.7), keep(3, 0.6)] == [True, True, False]
  assert kept(tmp_path) == {2}
  assert (tmp_path / 'best' / 'model.ckpt-2.index').read_text() == 'index of 2'
  with open(tmp_path / 'best' / 'best.json', encoding='utf-8') as file:
    expected = {'accuracy': 0.7, 'global_step': 2, 'checkpoint': 'model.ckpt-2', 'others': []}
    assert json.load(file) == expected
  assert checkpoints.best(str(tmp_path)) == str(tmp_path / 'best' / 'model.ckpt-2')


def test_several_are_ranked(tmp_path, keep):
  """Of equals the earlier one comes first; one that is evaluated again takes its own place."""
  for step, accuracy in [(1, 0.1), (2, 0.3), (3, 0.3), (4, 0.2), (2, 0.3)]:
    keep(step, accuracy, count=2)
  assert [entry['global_step'] for entry in checkpoints.read_best(str(tmp_path))] == [3, 2]
  assert kept(tmp_path) == {2, 3}


@pytest.mark.parametrize('call', range(4))
def test_death_at_any_file_leaves_a_whole_best(tmp_path, keep, monkeypatch, call):
  """The copy's three files and best.json take their places one by one: the process dies at each."""
  keep(1, 0.5)
  move, calls = files.move, []

  def dying(*names):
    calls.append(names)
    if len(calls) > call:
      raise KeyboardInterrupt
    move(*names)

  monkeypatch.setattr(files, 'move', dying)
  with pytest.raises(KeyboardInterrupt):
    keep(2, 0.6)
  monkeypatch.undo()
  assert checkpoints.best(str(tmp_path)).endswith('model.ckpt-1')
  assert 1 in kept(tmp_path)
  assert keep(2, 0.6)
  assert kept(tmp_path) == {2}


def test_there_is_none(tmp_path):
  with pytest.raises(InputError, match=r'--checkpoint best: .* has none'):
    checkpoints.best(str(tmp_path))
