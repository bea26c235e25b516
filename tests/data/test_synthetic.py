"""Generated batches: the same images always, and something to learn in them."""

import hashlib

import numpy as np
import pytest

from cifar10.data.build import synthetic
from cifar10.data.build.archive import read_batches


def test_cifar_10s_batches_are_what_they_have_always_been(tmp_path):
  """Others' record files, and what was measured with them, go back to these images."""
  folder = synthetic.write_synthetic(str(tmp_path), 4, seed=0)
  for name, digest in {
    'data_batch_1': '3a0b374a8aa44003',
    'test_batch': 'bc4c752d047993e2',
  }.items():
    images = b''.join(image.tobytes() for image, _ in read_batches([f'{folder}/{name}']))
    assert hashlib.sha256(images).hexdigest()[:16] == digest


def ridge_accuracy(features, labels, penalty):
  """Test accuracy of a linear model, fitted to four fifths in its dual form."""
  count = len(labels) * 4 // 5
  x, y = features[:count], np.eye(labels.max() + 1)[labels[:count]]
  weights = x.T @ np.linalg.solve(x @ x.T + penalty * np.eye(count), y)
  return (np.argmax(features[count:] @ weights, 1) == labels[count:]).mean()


@pytest.mark.slow
def test_a_linear_model_does_not_solve_the_synthetic_images():
  labels = np.arange(3000) % 10
  pixels = synthetic.synthetic_images(labels, np.random.default_rng(0)) / 128 - 1
  # 0.43 here, where one texture in any phase still correlates with itself; ResNet-8 reaches 0.99.
  assert ridge_accuracy(pixels, labels, 1000) < 0.5


@pytest.mark.slow
def test_a_hundred_classes_differ_in_their_frequencies():
  labels = np.arange(1500) % 100
  images = synthetic.synthetic_images(labels, np.random.default_rng(0), 100)
  # 0.05 here. Five layers of convolutions reach 0.97 in five epochs of 20,000 images.
  assert ridge_accuracy(images / 128 - 1, labels, 1000) < 0.12
  planes = images.reshape(-1, 3, 32, 32) - 128.0
  window = np.outer(np.hanning(32), np.hanning(32))
  power = (np.abs(np.fft.rfft2(planes * window)) ** 2).sum(1).reshape(len(labels), -1)
  strength = np.log1p(np.sqrt(power))
  # How strong each frequency is, whatever its phase: 0.3 here, by chance it would be 0.01.
  assert ridge_accuracy((strength - strength.mean(0)) / strength.std(0), labels, 1000) > 0.2


@pytest.mark.parametrize('num_classes', [2, 125])
def test_every_class_of_any_number_can_be_drawn(num_classes):
  images = synthetic.synthetic_images(np.arange(num_classes), np.random.default_rng(0), num_classes)
  assert (images.shape, images.dtype) == ((num_classes, 3072), np.uint8)
  assert (images.std(1) > 5).all()
