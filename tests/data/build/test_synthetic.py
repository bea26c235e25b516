"""Generated archives and images: the same bytes always, and something to learn in them."""

import numpy as np
import pytest

from cifar10.data.build import archive, synthetic


def read_bytes(path):
  with open(path, 'rb') as file:
    return file.read()


def test_a_seed_fixes_every_byte(tmp_path):
  paths = [str(tmp_path / name) for name in ('first', 'again', 'other')]
  digests = [synthetic.write_synthetic(path, 40, seed) for path, seed in zip(paths, (1, 1, 2))]
  assert digests[0] == digests[1] != digests[2]
  first, again, other = map(read_bytes, paths)
  assert first == again != other


def test_cifar_10s_batches_are_what_they_have_always_been(tmp_path):
  """Others' record files, and what was measured with them, go back to these bytes."""
  digests = synthetic.write_synthetic(str(tmp_path / 'a'), 4, seed=0)
  assert digests['data_batch_1'] == (
    '28e5a4fc77a31829faec099fc004b79ed996275c4f01cae4aa0db9def2c8eba6'
  )
  assert digests['test_batch'] == (
    'ff5983bbf77745b5096b96ff7069bd042921c7eecf6b1f9e8e6fdda154e7ae82'
  )


def test_a_cifar_100_of_the_same_seed_is_the_same(tmp_path):
  digests = [
    synthetic.write_synthetic(str(tmp_path / name), 3, 0, archive.CIFAR100) for name in 'ab'
  ]
  assert digests[0] == digests[1]
  assert set(digests[0]) == {'meta', 'train', 'test'}


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


@pytest.mark.parametrize('num_classes', [2, 10, 11, 125])
def test_every_class_of_any_number_can_be_drawn(num_classes):
  images = synthetic.synthetic_images(np.arange(num_classes), np.random.default_rng(0), num_classes)
  assert images.shape == (num_classes, 3072)
  assert images.dtype == np.uint8
  assert (images.std(1) > 5).all()
