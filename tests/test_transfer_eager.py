"""The example in docs/: transfer in plain TensorFlow 2 and Keras."""

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import succeeded
from random_checkpoint import IMAGES, save

from cifar10.data.manifest import CIFAR10
from cifar10.exporters import freeze_graph, keras_file
from cifar10.options.hparams import from_values

SCRIPT = f'{checkout.ROOT}/docs/transfer_eager.py'


@pytest.mark.slow
def test_one_trunk_two_heads_and_the_whole(data_dir, tmp_path):
  hparams = from_values({'num_layers': 8, 'batch_norm_decay': 0.9})
  checkpoint, (probabilities, features) = save(hparams)
  made = freeze_graph.freeze(hparams, CIFAR10, checkpoint)
  keras_file.write(str(tmp_path / '1.keras'), made, {})
  flags = ['--model', tmp_path, '--data-dir', data_dir, '--batch-size', 16, '--epochs', 4]
  # In a folder where nothing of the project is.
  accuracy = succeeded(checkout.python(SCRIPT, *flags, cwd=tmp_path))['accuracy']
  assert set(accuracy) == {'frozen_trunk', 'whole_network'}
  assert accuracy['whole_network'] > 0.2  # Of ten classes: seven of the 70 images by chance.

  def load(name):
    return tf.keras.models.load_model(tmp_path / 'transfer' / name)

  # The published trunk is the exported one, its batch norms' averages, too.
  np.testing.assert_allclose(load('trunk.keras')(IMAGES), features, rtol=1e-4, atol=1e-4)
  answers = load('two-heads.keras')(IMAGES)
  np.testing.assert_allclose(answers['old'], probabilities, atol=1e-5)
  assert answers['new'].shape == (4, 10)
  # Unfrozen, batch norm learned, too.
  before, after = load('trunk.keras'), load('network.keras').get_layer(load('trunk.keras').name)
  for old, new in zip(before.get_weights(), after.get_weights()):
    assert not np.array_equal(old, new)
