"""Checkpoints: their values, two jobs' compared, and averages of weights recomputed in NumPy."""

import os

import numpy as np
import tensorflow as tf

SUFFIX = '/ExponentialMovingAverage'
STEPS = 5
DECAY = 0.3  # The warm-up reaches it at the third step.
AVERAGED = ['--train-steps', STEPS, '--ema-decay', DECAY]
AVERAGED += ['--save-every-steps', 1, '--keep-checkpoints', STEPS + 1, '--eval-every-steps', 100]


def values(path):
  """Of a checkpoint, or of a job dir's last, by the variables' names."""
  reader = tf.train.load_checkpoint(str(path))
  return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def variables(job_dir, step):
  """The values of a job's checkpoint of a step."""
  return values(os.path.join(job_dir, f'model.ckpt-{step}'))


def assert_equal(job_dir, other, step):
  """Two jobs' checkpoints of a step are the same, bit for bit."""
  assert_close(job_dir, other, step, rtol=0, atol=0)


def assert_close(job_dir, other, step, rtol=1e-3, atol=1e-4):
  """Two jobs' checkpoints of a step are the same but for rounding over a few steps."""
  expected, found = variables(job_dir, step), variables(other, step)
  assert expected.keys() == found.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(found[name], value, rtol, atol, err_msg=name)


def check_averages(job_dir):
  """Each step's averages of all of a network's variables are what the steps before lead to.

  The job is one with the flags above.
  """
  kept = variables(job_dir, 0)
  network = {name for name in kept if name.startswith(('resnet/', 'tiny/'))}
  network = {name for name in network if not name.endswith(('/Momentum', '/Muon'))}
  averaged = {name.removesuffix(SUFFIX) for name in network if name.endswith(SUFFIX)}
  assert averaged == {name for name in network if not name.endswith(SUFFIX)}
  assert {name.rpartition('/')[2] for name in averaged} >= {'kernel', 'moving_variance'}
  expected = {name: kept[name].astype(np.float64) for name in averaged}
  for step in range(1, STEPS + 1):
    kept = variables(job_dir, step)
    assert kept['global_step'] == step
    decay = min(DECAY, (1 + step) / (10 + step))
    for name in averaged:
      expected[name] = decay * expected[name] + (1 - decay) * kept[name]
      np.testing.assert_allclose(
        kept[name + SUFFIX], expected[name], rtol=1e-6, atol=1e-6, err_msg=f'{name}, step {step}'
      )
  assert any(np.abs(kept[name] - expected[name]).max() > 1e-2 for name in averaged)
