"""Jobs on other data sets than CIFAR-10: generate, train, evaluate, predict, export."""

import json

import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded

import generate_cifar10_tfrecords
from cifar10.core.errors import InputError
from cifar10.data import manifest
from cifar10.job import job_config

SMALL = ['--num-layers', 8, '--train-batch-size', 16, '--train-steps', 2]


@pytest.fixture
def generate(run_here, tmp_path):
  """Fills DATA by the command, with these flags -> what it printed."""
  command = {'command': generate_cifar10_tfrecords}
  return lambda *flags: succeeded(run_here('--data-dir', tmp_path / 'data', *flags, **command))


@pytest.fixture
def run_job(run_here, tmp_path):
  """Runs a command on JOB -> the JSON of its last line."""
  return lambda *flags: succeeded(run_here('--job-dir', tmp_path / 'job', *flags))


def write_images(folder, shade, count):
  """So many images of this shade of grey, with noise."""
  folder.mkdir(parents=True)
  rng = np.random.default_rng(shade)
  for number in range(count):
    pixels = np.clip(rng.normal(shade, 20, [40, 36, 3]), 0, 255).astype(np.uint8)
    tf.io.write_file(str(folder / f'{number}.png'), tf.io.encode_png(pixels))


def check_job(run_job, tmp_path, classes, examples):
  """Trains, evaluates, predicts and exports: everywhere these classes, in this order."""
  trained = run_job('--data-dir', tmp_path / 'data', *SMALL)
  assert list(trained['accuracy_by_class']) == classes
  assert trained['examples'] == examples
  write_images(tmp_path / 'seen', 100, 1)
  predicted = run_job('--mode', 'predict', '--images', tmp_path / 'seen' / '0.png')
  assert list(predicted['probabilities']) == classes
  assert predicted['class'] in classes
  path = run_job('--mode', 'export')['saved_model']
  served = tf.saved_model.load(path).signatures['serving_default']
  answer = served(images=tf.zeros([1, 32, 32, 3], tf.uint8))
  assert answer['probabilities'].shape == [1, len(classes)]


@pytest.mark.slow
def test_cifar100(generate, run_here, run_job, data_dir, tmp_path):
  """Of a synthetic archive: 100 images of train are validation's, 100 of test are eval's."""
  said = generate('--dataset', 'cifar100', '--synthetic', 100)
  assert said['num_classes'] == 100
  classes = list(manifest.describe(str(tmp_path / 'data')).classes)
  assert len(classes) == 100
  check_job(run_job, tmp_path, classes, said['examples']['eval'])
  # TensorFlow would take its logits for a job of ten classes, and the metrics would be of others.
  ten, other = ['--job-dir', tmp_path / 'ten'], tmp_path / 'job' / 'model.ckpt-2'
  assert run_here(*ten, '--data-dir', data_dir, *SMALL, '--mode', 'train').returncode == 0
  for mode in (['evaluate', '--data-dir', data_dir], ['export']):
    said = refused(run_here(*ten, '--mode', *mode, '--checkpoint', other))
    assert 'resnet/fully_connected/kernel is [64, 100] there, and [64, 10] here; name' in said
  assert not (tmp_path / 'ten' / 'export').exists()


@pytest.mark.long
def test_a_folder_of_images(generate, run_job, run_here, data_dir, tmp_path):
  """Two classes of 20 images: 16, 2 and 2 of each; fewer classes than the five of top 5."""
  write_images(tmp_path / 'photos' / 'day & <b>', 200, 20)
  write_images(tmp_path / 'photos' / 'night', 30, 20)
  said = generate('--images', tmp_path / 'photos')
  assert said['examples'] == {'train': 32, 'validation': 4, 'eval': 4}
  check_job(run_job, tmp_path, ['day & <b>', 'night'], 4)
  # The job knows its classes: another data set's test images are no test of it.
  other = ['--job-dir', tmp_path / 'job', '--data-dir', data_dir, '--mode', 'evaluate']
  assert 'was trained on 2 classes of photos, and --data-dir' in refused(run_here(*other))


def test_a_job_without_a_checkpoint_takes_another_data_set(data_dir, tmp_path):
  """It ended before its first step, maybe by an error in the user's network."""
  textures = {**manifest.CIFAR10.to_json(), 'name': 'textures', 'classes': [*'abcdefghij']}
  (tmp_path / 'config.json').write_text(json.dumps({'num_layers': 8, 'data_set': textures}))
  assert job_config.described_data(str(tmp_path), data_dir).name == manifest.CIFAR10.name
  (tmp_path / 'checkpoint').touch()
  with pytest.raises(InputError, match=r'on 10 classes of textures, .* has others, 10 '):
    job_config.described_data(str(tmp_path), data_dir)
