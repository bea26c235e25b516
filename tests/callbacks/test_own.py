"""A user's callbacks and session hooks, by flags and as objects: what they may do, and refusals."""

import numpy as np
import pytest
import tensorflow as tf
from outcome import events, succeeded
from outside_parts import NOISE, PlainHook
from tensorflow.compat.v1.train import summary_iterator

import cifar10
import cifar10.control

SMALL = {'network': 'outside_parts:net', 'train_batch_size': 16, 'eval_batch_size': 64}


@pytest.mark.parametrize(
  ('callback', 'code', 'says'),
  [
    ('outside_parts:Fails', 1, 'outside_parts:Fails: on_step_end: ValueError: step 1 is bad'),
    ('outside_parts:ReadsTooMuch', 1, 'on_step_end: OutOfRangeError: no more images'),
    ('outside_parts:TakesNoRun', 1, '--callback outside_parts:TakesNoRun: TypeError: '),
    ('builtins:repr', 2, '--callback builtins:repr gives '),
  ],
)
def test_a_callback_that_fails_is_named(train, callback, code, says):
  result = train('--callback', callback)
  assert result.returncode == code
  assert says in result.stderr.splitlines()[-1]


def test_plain_session_hooks_are_taken(train, data_dir, tmp_path, capfd):
  """By a function's name, and as objects: three after a step, as TensorFlow's own."""
  result = train('--callback', 'outside_parts:plain_hook', '--mode', 'train')
  succeeded(result)
  assert result.stdout.count('HOOK') == 4
  hooks = [PlainHook(), tf.compat.v1.train.StopAtStepHook(num_steps=3)]
  ended = cifar10.train(tmp_path / 'other', data_dir, mode='train', callbacks=hooks, **SMALL)
  assert (ended['global_step'], ended['ended_by']) == (3, 'callback')
  assert capfd.readouterr().out.count('HOOK') == 3


def test_a_callback_draws_curves_and_stops(train, run_here, tmp_path):
  """Points at their steps, in both files; the end holds until somebody lifts it."""
  job = tmp_path / 'job'
  ended = succeeded(train('--callback', 'outside_parts:Draws', '--eval-every-steps', 2))
  assert (ended['global_step'], ended['ended_by']) == (3, 'callback')
  points = [(e['name'], e['step'], e['value']) for e in events(job, 'scalar')]
  squares = [('own/squared', step, step**2) for step in (1, 2, 3)]
  assert [point for point in points if point[0] == 'own/squared'] == squares
  losses = [('own/evaluated', e['step'], e['loss']) for e in events(job, 'evaluate')]
  assert [point for point in points if point[0] == 'own/evaluated'] == losses
  [file] = job.glob('events*')
  written = [(each.step, each.summary.value) for each in summary_iterator(str(file))]
  shown = [(step, of[0].simple_value) for step, of in written if of and of[0].tag == 'own/squared']
  assert shown == [point[1:] for point in squares]
  again = train()
  assert succeeded(again)['global_step'] == 3
  assert 'the job ended at step 3: three are enough' in again.stderr
  succeeded(run_here(job, 'go-on', command=cifar10.control))
  assert succeeded(train())['global_step'] == 4


@pytest.mark.parametrize(
  'more',
  [[], ['--ema-decay', 0.5, '--use-ema'], ['--network', 'outside_parts:one_initial_value']],
  ids=['plain', 'ema', 'one initial value'],
)
def test_a_predictor_has_the_weights_of_its_step(train, tmp_path, more):
  """Those of the last step are the last checkpoint's."""
  job = tmp_path / 'job'
  succeeded(train('--callback', 'outside_parts:Predicts', '--eval-every-steps', 2, *more))
  answers = np.load(job / 'answers.npy')
  assert answers.shape == (4, 3, 10)
  assert len(np.unique(answers[:, 0], axis=0)) == 4
  last = cifar10.load(job, use_ema='--use-ema' in more)(NOISE)
  np.testing.assert_allclose(answers[-1], last.probabilities, atol=1e-6)
