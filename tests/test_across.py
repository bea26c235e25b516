"""A job that was begun here goes on, and an exported network runs, under another Python."""

import os
import shutil
import sys

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import succeeded

OTHER = os.environ.get('OTHER_PYTHON')
SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--eval-every-steps', 100]

pytestmark = pytest.mark.skipif(not OTHER, reason='OTHER_PYTHON names no other Python')

SERVE = """
import json, sys
import numpy as np, tensorflow as tf
network = tf.saved_model.load(sys.argv[1]).signatures['serving_default']
answer = network(images=tf.constant(np.load(sys.argv[2])))
print(json.dumps(answer['probabilities'].numpy().tolist()))
"""


def run(*arguments, python=OTHER):
  """A program under the other Python -> the JSON of its last line."""
  return succeeded(checkout.run(python, *arguments))


def test_the_other_python_goes_on_with_a_job_and_serves_its_network(run_main, data_dir, tmp_path):
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path, *SMALL]
  here = succeeded(run_main(*flags, '--train-steps', 3))
  exported = succeeded(run_main('--job-dir', tmp_path, '--mode', 'export'))['saved_model']
  evaluated = run('cifar10_main.py', *flags, '--mode', 'evaluate')
  assert evaluated['global_step'] == 3
  assert evaluated['accuracy'] == pytest.approx(here['accuracy'], abs=1.5 / 70)  # One image.
  assert evaluated['loss'] == pytest.approx(here['loss'], rel=1e-3)
  images = np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3]).astype(np.uint8)
  np.save(tmp_path / 'images.npy', images)
  there = run('-c', SERVE, exported, tmp_path / 'images.npy')
  network = tf.saved_model.load(exported).signatures['serving_default']
  np.testing.assert_allclose(there, network(images=tf.constant(images))['probabilities'], atol=1e-4)
  assert run('cifar10_main.py', *flags, '--train-steps', 6)['global_step'] == 6


@pytest.mark.parametrize(('program', 'begin'), [('canned', 30), ('resnet', 20)])
def test_another_program_computes_there_what_it_computes_here(tmp_path, program, begin):
  """From one checkpoint, and a step later: a premade Estimator, and a ResNet of tf.layers."""

  def ran(python, folder, steps):
    words = ['-m', 'estimator_again', f'tests/again/{program}.py', '--model_dir', folder]
    printed = run(*words, '--steps', steps, python=python)
    return {**printed, 'names': 0, 'losses': 0, **dict(enumerate(printed.get('losses', [])))}

  here, there = tmp_path / 'here', tmp_path / 'there'
  ran(sys.executable, here, begin)
  shutil.copytree(here, there)
  for steps in (begin, begin + 1):
    assert ran(OTHER, there, steps) == pytest.approx(ran(sys.executable, here, steps), rel=1e-5)
