"""The example in docs/ that converts an export for LiteRT."""

import os

import checkout
import pytest
from outcome import succeeded


@pytest.mark.slow
def test_what_litert_says_is_what_an_evaluation_says(run_here, data_dir, tmp_path):
  small = ['--num-layers', 8, '--train-batch-size', 16, '--batch-norm-decay', 0.8]
  trained = run_here('--data-dir', data_dir, '--job-dir', tmp_path, *small, '--train-steps', 40)
  exported = run_here('--job-dir', tmp_path, '--mode', 'export')
  accuracy = succeeded(trained)['accuracy']
  folder = succeeded(exported)['saved_model']
  environment = {**os.environ, 'PYTHONPATH': checkout.ROOT}
  result = checkout.python('docs/to_litert.py', folder, data_dir, env=environment)
  whole, small, agreement = succeeded(result).values()
  assert whole['accuracy'] == pytest.approx(accuracy, abs=1.5 / 70)  # One image of 70, rounded.
  assert agreement > 0.8  # Of networks that have nothing to do with each other: about 0.1.
  assert small['bytes'] < 0.4 * whole['bytes']
  assert {'network.tflite', 'network_int8.tflite'} < set(os.listdir(folder))
