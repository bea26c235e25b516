"""The code in docs/ runs: the blocks of python.md, in order, and those of exports.md."""

import os
import re
import sys

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import events, succeeded
from random_checkpoint import IMAGES, save

import cifar10
from cifar10.data.manifest import CIFAR10
from cifar10.exporters import freeze_graph, keras_file
from cifar10.options.hparams import from_values
from cifar10.training.schedules import learning_rates

pytestmark = pytest.mark.slow


def block(name, page='exports'):
  """The code of a page that a user copies to a file of this name."""
  [code] = re.findall(f'```python\\n# {name}(.*?)```', checkout.read(f'docs/{page}.md'), re.S)
  return f'#{code}'


def test_every_block_of_the_python_page_runs(data_dir, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [*sys.path, str(tmp_path)])
  (tmp_path / 'data').symlink_to(data_dir)
  (tmp_path / 'docs').symlink_to(os.path.join(checkout.ROOT, 'docs'))
  names = {}
  for each in re.findall(r'```python\n(.*?)```', checkout.read('docs/python.md'), re.S):
    fewer = re.sub(r'train_steps=\d+', 'train_steps=4, train_batch_size=16', each)
    code = re.sub(r'eval_every_steps=\d+', 'eval_every_steps=1', fewer)
    if file := re.match(r'# (\w+\.py)\n', code):
      (tmp_path / file[1]).write_text(code)
    else:
      exec(compile(code, 'docs/python.md', 'exec'), names)
  assert [step for step, _ in names['curve']] == [1, 2, 3, 4]
  assert names['probabilities'].shape == (3, 10)
  np.testing.assert_allclose(names['probabilities'].sum(1), 1, rtol=1e-5)
  assert [event['step'] for event in events('job-tiny', 'end')] == [4]
  assert len(names['table']) == 70


def test_mixup_and_cutmix_by_hand(monkeypatch):
  """A quarter of 40 and three of 200 are 160; a square of 16 is a quarter of 32 x 32."""
  names, drawn = {}, {(): 0.25, (2, 1): [[3], [5]]}
  exec(block('my_training.py', 'python'), names)
  monkeypatch.setattr(tf.random, 'stateless_uniform', lambda shape, *rest: drawn[tuple(shape)])
  images = np.full([2, 32, 32, 3], 40, np.uint8)
  images[1] = 200
  given = images, tf.constant([3, 7]), tf.constant([1, 2])
  mixed, rows = names['mixup'](*given)
  assert [np.unique(image).tolist() for image in mixed] == [[160], [80]]
  expected = np.zeros([2, 10])
  expected[0, [3, 7]], expected[1, [3, 7]] = (0.25, 0.75), (0.75, 0.25)
  np.testing.assert_array_equal(rows, expected)
  cut, rows = names['cutmix'](*given)
  images[:, 3:19, 5:21] = images[::-1, 3:19, 5:21]
  np.testing.assert_array_equal(cut, images)
  np.testing.assert_array_equal(rows, expected[::-1])


def test_keras_trains_on_alike(data_dir, tmp_path, monkeypatch):
  """A hundred steps from step 0, whose checkpoint replaces the last values, which are exported.

  The losses differ by 1.1e-4 at most, by 1e-2 at ten times the rate: roundings grow with it.
  """
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'data').symlink_to(data_dir)
  losses, callback, names = [], cifar10.Callback(), {}
  callback.on_step_end = lambda step: losses.append(step.values['loss'])
  given = {'num_layers': 8, 'batch_norm_decay': 0.9, 'lr_values': (0.01, 0.1, 0.01, 0.002)}
  settings = {'mode': 'train', 'train_steps': 100, 'train_batch_size': 32}
  cifar10.train('job', 'data', callbacks=[callback], **given, **settings)
  last = cifar10.export('job', format='keras')['keras']
  script = block('train_on.py').replace('job/export/1795362711.keras', last)
  script = script.replace('ckpt-25000', 'ckpt-0').replace('128', '32').replace('[0.1,', '[0.001,')
  exec(re.sub(r'=500, epochs=\d+', '=1, epochs=100', script), names)
  np.testing.assert_allclose(names['history']['loss'], losses, rtol=1e-3)
  # Kernels move by 0.01; of a batch's variances Keras 3's differ by a part in 2,048 at most.
  program = tf.keras.models.load_model(last).get_weights()
  for value, expected in zip(names['network'].get_weights(), program):
    np.testing.assert_allclose(value, expected, rtol=5e-3, atol=1e-3)
  for step in 0, 25_624, 25_625, 38_437, 38_438, 93_749, 93_750:
    rates = learning_rates(from_values(given), tf.constant(step, tf.int64), 40_000, 128)
    np.testing.assert_allclose(names['rate'](step), rates.sgd, rtol=1e-6)


def test_transfer_to_one_trunk_with_two_heads_and_the_whole(data_dir, tmp_path):
  hparams = from_values({'num_layers': 8, 'batch_norm_decay': 0.9})
  checkpoint, (probabilities, features, _) = save(hparams)
  keras_file.write(str(tmp_path / '1.keras'), freeze_graph.freeze(hparams, CIFAR10, checkpoint), {})
  script = block('transfer.py').replace('batch(64)', 'batch(16)')
  # In a folder where nothing of the project is.
  ran = checkout.python('-c', script, '1.keras', data_dir, 'transfer', cwd=tmp_path)
  accuracy = succeeded(ran)['accuracy']
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


def test_what_litert_says_is_what_an_evaluation_says(run_here, data_dir, tmp_path):
  small = ['--num-layers', 8, '--train-batch-size', 16, '--batch-norm-decay', 0.8]
  trained = run_here('--data-dir', data_dir, '--job-dir', tmp_path, *small, '--train-steps', 40)
  accuracy = succeeded(trained)['accuracy']
  folder = succeeded(run_here('--job-dir', tmp_path, '--mode', 'export'))['saved_model']
  environment = {**os.environ, 'PYTHONPATH': checkout.ROOT}
  result = checkout.python('-c', block('to_litert.py'), folder, data_dir, env=environment)
  whole, small, agreement = succeeded(result).values()
  assert whole['accuracy'] == pytest.approx(accuracy, abs=1.5 / 70)  # One image of 70, rounded.
  assert agreement > 0.8  # Of networks that have nothing to do with each other: about 0.1.
  assert small['bytes'] < 0.4 * whole['bytes']
  assert {'network.tflite', 'network_int8.tflite'} < set(os.listdir(folder))
