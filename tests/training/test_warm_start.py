"""Starting with the variables of another job, and leaving some of them as they are."""

import re

import checkout
import numpy as np
import pytest
from outcome import refused
from recomputed import variables

RESNET = ['--network', 'resnet', '--num-layers', 8, '--mode', 'train']
# ResNet-8: 3 x 2 convolutions of a batch norm each and the first: 7 kernels, 7 x 4 of batch norms.
# Shortcuts have none. And the head's kernel and bias.
VARIABLES = 7 + 7 * 4 + 2
HEAD = 'resnet/fully_connected'
OTHER = f'{checkout.OLD_JOBS}/resnet8'  # A job of 8 steps.


def as_arrays(path, **changed):
  values = {name: value for name, value in variables(OTHER, 8).items() if 'Momentum' not in name}
  values.update(changed)
  np.savez(path, **values)
  return str(path)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['job dir', 'npz'])
def test_a_new_job_starts_with_the_others_variables(kind, train, tmp_path):
  source = OTHER if kind == 'job dir' else as_arrays(tmp_path / 'other.npz')
  more = ['--num-cpu-towers', 2] if kind == 'job dir' else ['--ema-decay', 0.9]
  flags = [*RESNET, *more, '--warm-start-from', source, '--train-steps']
  result = train(*flags, 1)
  assert result.returncode == 0, result.stderr
  assert f': {VARIABLES} of {VARIABLES} variables\n' in result.stderr
  there, here = variables(OTHER, 8), variables(tmp_path / 'job', 0)
  for name, value in here.items():
    if name.endswith('/Momentum') or name == 'global_step':
      assert not value.any(), name
    else:
      plain = name.removesuffix('/ExponentialMovingAverage')
      np.testing.assert_array_equal(value, there[plain], err_msg=name)
  again = train(*flags, 2)
  assert '--warm-start-from is ignored: the job goes on from its own checkpoint' in again.stderr
  assert 'resuming at step 1 of 2' in again.stderr


def test_what_differs_is_named_on_both_sides_and_left(train, tmp_path):
  """A head of twelve classes; one that is only there; the later source wins."""
  bias = 'resnet/init/batch_norm/offset'
  first = as_arrays(tmp_path / 'first.npz', **{f'{HEAD}/bias': np.zeros(12, np.float32)})
  np.savez(tmp_path / 'second.npz', **{bias: np.full(16, 7.0), 'resnet/more': np.zeros(2)})
  sources = ['--warm-start-from', first, '--warm-start-from', tmp_path / 'second.npz']
  result = train(*RESNET, '--train-steps', 1, *sources)
  assert result.returncode == 0, result.stderr
  assert f'{VARIABLES - 1} of {VARIABLES} variables\n' in result.stderr
  assert f'1 of another shape: {HEAD}/bias [12], here [10]' in result.stderr
  assert f'{VARIABLES - 1} not there: ' in result.stderr
  assert '1 only there: resnet/more' in result.stderr
  here = variables(tmp_path / 'job', 0)
  np.testing.assert_array_equal(here[bias], np.full(16, 7.0))


@pytest.mark.parametrize(
  ('write', 'said'),
  [
    (lambda path: path.write_bytes(b'no archive'), 'cannot be read'),
    (lambda path: np.savez(path, **{HEAD: np.array([print])}), 'cannot be read'),
    (lambda path: np.savez(path, **{'vgg/head/bias': np.zeros(3)}), 'none of its 1 variables is'),
    (lambda path: np.savez(path, **{f'{HEAD}/bias': np.full(10, np.nan)}), 'no finite number'),
    (lambda path: path.mkdir(), 'holds no checkpoint'),
    (lambda path: None, 'holds no checkpoint'),
    (lambda path: path.with_name(path.name + '.index').touch(), 'name another in its place'),
  ],
)
def test_refuses_a_source_before_the_job_dir_is_made(write, said, train, tmp_path):
  path = tmp_path / 'source.npz'
  write(path)
  line = refused(train(*RESNET, '--train-steps', 1, '--warm-start-from', path))
  assert f'--warm-start-from {path}' in line
  assert said in line
  assert line.count('; name ') == 1
  assert not (tmp_path / 'job').exists()


@pytest.mark.parametrize('towers', [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_frozen_stays(towers, train, tmp_path):
  """Trained are the last stage's and the head's; with weight decay, which would shrink the rest."""
  flags = ['--train-steps', 2, '--freeze', r'resnet/(init|stage[12])/', '--weight-decay', 0.1]
  result = train(*RESNET, *flags, '--num-cpu-towers', towers)
  assert result.returncode == 0, result.stderr
  # Of the last stage two kernels, two scales and two offsets; the head's kernel and bias.
  assert f'8 of {VARIABLES} variables are trained' in result.stderr
  before, after = (variables(tmp_path / 'job', step) for step in (0, 2))
  changed = {name for name in before if not np.array_equal(before[name], after[name])}
  frozen = re.compile(r'resnet/(init|stage[12])/')
  assert not [name for name in changed if frozen.match(name)]
  assert not [name for name in before if frozen.match(name) and name.endswith('Momentum')]
  assert f'{HEAD}/kernel' in changed
  assert 'resnet/stage3/block0/bn1/moving_mean' in changed


@pytest.mark.parametrize('pattern', ['stag4', 'resnet'])
def test_refuses_to_freeze_nothing_or_everything(pattern, train, tmp_path):
  assert f"--freeze '{pattern}' leaves" in refused(train(*RESNET, '--freeze', pattern))
  assert not (tmp_path / 'job').exists()
