"""An exported network, as servers and other programs meet it."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
from outcome import succeeded

from cifar10.job import metrics_log

pytestmark = pytest.mark.slow

SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--eval-batch-size', 64]


@pytest.fixture(scope='module')
def job(run_main, data_dir, tmp_path_factory):
  """A job of four steps with an evaluation."""
  folder = str(tmp_path_factory.mktemp('jobs') / 'job')
  flags = [*SMALL, '--train-steps', 4, '--eval-every-steps', 4]
  succeeded(run_main('--data-dir', data_dir, '--job-dir', folder, *flags))
  return folder


@pytest.fixture(scope='module')
def exported(job, run_main):
  return succeeded(run_main('--job-dir', job, '--mode', 'export'))


def test_encoded_images_are_decoded_and_resized_as_predict_does(exported, job, run_here, tmp_path):
  """A grey PNG of 40x50 pixels, a JPEG of 32x32 and an RGBA PNG of 7x5."""
  pixels = np.random.default_rng(0).integers(0, 256, [50, 40, 4]).astype(np.uint8)
  contents = {
    'grey.png': tf.io.encode_png(pixels[..., :1]),
    'same.jpg': tf.io.encode_jpeg(pixels[:32, :32, :3]),
    'alpha.png': tf.io.encode_png(pixels[:5, :7]),
  }
  for name, content in contents.items():
    tf.io.write_file(str(tmp_path / name), content)
  files = [tmp_path / name for name in contents]
  said = run_here('--job-dir', job, '--mode', 'predict', '--images', *files)
  expected = [json.loads(line)['probabilities'] for line in said.stdout.splitlines()]
  served = tf.saved_model.load(exported['saved_model']).signatures['encoded']
  found = served(encoded=tf.stack([*contents.values()]))['probabilities']
  for theirs, ours in zip(expected, found.numpy(), strict=True):
    np.testing.assert_allclose(ours, list(theirs.values()), rtol=1e-4, atol=2e-6)


def test_features_make_the_probabilities(exported):
  """softmax(features kernel + bias), by the checkpoint's head."""
  signatures = tf.saved_model.load(exported['saved_model']).signatures
  images = tf.constant(np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3]).astype(np.uint8))
  features = signatures['features'](images=images)['features']
  head = tf.train.load_checkpoint(exported['checkpoint'])
  logits = features @ head.get_tensor('resnet/fully_connected/kernel')
  logits += head.get_tensor('resnet/fully_connected/bias')
  expected = signatures['serving_default'](images=images)
  np.testing.assert_allclose(tf.nn.softmax(logits), expected['probabilities'], rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(tf.argmax(logits, 1), expected['classes'])


def test_it_says_what_it_was_made_from(exported, job, run_here):
  path = os.path.join(exported['saved_model'], 'assets.extra', 'made_from.json')
  with open(path, encoding='utf-8') as file:
    made_from = json.load(file)
  assert {**made_from, 'saved_model': exported['saved_model']} == exported
  assert (made_from['network'], made_from['global_step']) == ('ResNet-8', 4)
  assert (made_from['weights'], made_from['classes'][9]) == ('last', 'truck')
  evaluations = [each for each in metrics_log.read(job) if each['event'] == 'evaluate']
  expected = {each['subset']: each['accuracy'] for each in evaluations}
  assert made_from['accuracy'] == expected
  assert set(expected) == {'validation', 'eval'}
  again = succeeded(run_here('--job-dir', job, '--mode', 'export'))
  assert again['saved_model'] != exported['saved_model']
  assert again['sha256_of_variables'] == exported['sha256_of_variables']
